package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A rank carries out its part of a program.
type rank struct {
	p       *Program
	rank    int
	in      *injector
	ctx     context.Context // of operations
	comms   []*comm.Comm    // nil where it isn't a member, or the communicator could not be made
	broken  []bool
	hints   map[string]string // of its communicators
	leave   []func() error    // what else ends with the program
	pending []pending
	report  Report
}

// pending is what the rank has issued and not waited for yet.
type pending struct {
	t        *trial
	on, step int
}

// finalizing bounds a Finalize.
const finalizing = time.Minute

// run carries out rank's part. join makes the world's communicator.
func run(p *Program, number int, in *injector, join func(ctx context.Context, opts ...comm.NewOption) (*comm.Comm,
	error)) Report {
	r := &rank{p: p, rank: number, in: in, comms: make([]*comm.Comm, len(p.Comms)), broken: make([]bool, len(p.Comms)),
		report: Report{Rank: number}}
	if p.Fault.Kind == Absent && in.culprit() {
		in.fire()
		r.report.Fired = in.fired.Load()
		return r.report
	}
	r.ctx = context.Background()
	if p.Mode == Virtual && in.culprit() {
		r.ctx = polled{r.ctx, in}
	}
	hints := map[string]string{"host_id": fmt.Sprintf("host%d", p.Hosts[number])}
	for k, v := range p.Hints {
		hints[k] = v
	}
	start := func(ctx context.Context, more ...comm.NewOption) (*comm.Comm, error) {
		return join(ctx, append(more, comm.WithRank(number, p.Size), comm.WithTimeout(p.joining()), comm.WithHints(hints),
			comm.WithAbortOnError(false))...)
	}
	var world *comm.Comm
	var err error
	if p.Fault.Kind == Retried {
		world, err = r.retried(start)
	} else {
		world, err = start(context.Background())
	}
	if err != nil {
		r.fail(0, -1, err)
		r.report.Fired = in.fired.Load()
		return r.report
	}
	r.comms[0], r.hints = world, hints
	defer r.close()
	if err := world.SetTimeout(p.timeout(0)); err != nil {
		r.fail(0, -1, err)
	}
	for k := range p.Steps {
		in.step(k)
		if p.Fault.Kind == Exit && in.culprit() && k == p.Fault.Step {
			in.fire()
			break
		}
		if err := in.hunger(k); err != nil {
			panic(err) // of the campaign's own doing
		}
		r.step(k)
		in.sate()
	}
	r.await()
	for on, g := range p.Comms {
		if g.has(number) && r.comms[on] == nil {
			r.report.Without = append(r.report.Without, on)
		}
	}
	again := p.regroups() && !(p.Fault.Kind == Exit && in.culprit())
	if again {
		in.end()
	}
	for on := len(r.comms) - 1; on >= 0; on-- {
		if c := r.comms[on]; on == 0 && again {
			r.regroup(c)
		} else if c != nil {
			ctx, cancel := context.WithTimeout(context.Background(), finalizing)
			if err := c.Finalize(ctx); err != nil && !r.broken[on] {
				r.fail(on, len(p.Steps), err)
			}
			cancel()
		}
	}
	r.report.Fired = in.fired.Load()
	return r.report
}

func (r *rank) close() {
	for _, end := range r.leave {
		end()
	}
}

// step takes step k, if the rank has a part in it.
func (r *rank) step(k int) {
	s := &r.p.Steps[k]
	if s.Do == await {
		r.await()
		return
	}
	c := r.comms[s.On]
	if c == nil || r.broken[s.On] {
		return
	}
	if f := r.p.Fault; f.Kind == Abort && r.in.culprit() && k == f.Step {
		r.in.fire()
		c.Abort(errEnough)
	}
	err := r.contained(c, k, func() error { return r.do(c, s, k) })
	var bad *wrongError
	switch {
	case errors.As(err, &bad):
		r.wrong(k, bad.what)
	case err != nil && s.Do == found:
		r.fail(s.To[0], k, err)
	case err != nil:
		r.fail(s.On, k, err)
	default:
		r.report.Passed++
	}
}

func (r *rank) do(c *comm.Comm, s *step, k int) error {
	switch s.Do {
	case collective:
		return r.collective(c, s, k)
	case split:
		return r.split(c, s)
	case ring:
		return r.ring(c, s, k)
	case anySource:
		return r.anySource(c, s, k)
	case window:
		return r.window(c, s)
	case found:
		return r.found(s)
	case cross:
		return r.cross(s)
	}
	return nil
}

var errEnough = errors.New("the program has had enough")

// wrongError is a result that is wrong, though the operation gave no error.
type wrongError struct{ what string }

func (e *wrongError) Error() string { return e.what }

func (r *rank) wrong(k int, what string) {
	r.report.Wrong = append(r.report.Wrong, fmt.Sprintf("rank %d, step %d, %v: %s", r.rank, k, r.p.Steps[k], what))
}

func (r *rank) collective(c *comm.Comm, s *step, k int) error {
	t, err := newTrial(c, s)
	if err != nil {
		return err
	}
	if f := r.p.Fault; f.Kind == Mismatch && r.in.culprit() && k == f.Step {
		t.free()
		t.mistake(f.Wrong)
		r.in.fire()
	}
	t.op.Ctx = r.ctx
	if s.Async {
		if err := c.Submit(&t.op, &t.work); err != nil {
			t.free()
			return err
		}
		r.pending = append(r.pending, pending{t, s.On, k})
		return nil
	}
	return t.end(c.Submit(&t.op, nil))
}

// end checks the results of an operation that is done.
func (t *trial) end(err error) error {
	defer t.free()
	if err != nil {
		return err
	}
	if bad := t.wrong(); bad != "" {
		return &wrongError{bad}
	}
	return nil
}

// await waits for all that is pending.
func (r *rank) await() {
	for _, p := range r.pending {
		err := p.t.end(p.t.work.Wait(context.Background()))
		var bad *wrongError
		switch {
		case errors.As(err, &bad):
			r.wrong(p.step, bad.what)
		case err != nil && !r.broken[p.on]:
			r.fail(p.on, p.step, err)
		}
	}
	r.pending = nil
}

// split makes the communicators that this rank is a member of.
func (r *rank) split(c *comm.Comm, s *step) error {
	parent := r.p.Comms[s.On]
	mine := -1
	var ranks []int
	for _, to := range s.To {
		if g := r.p.Comms[to]; g.has(r.rank) {
			mine = to
			for _, m := range g.Members {
				ranks = append(ranks, indexOf(parent.Members, m))
			}
		}
	}
	// All members of c take part, so that its time counts: the culprit may be one of them, and not of the new one.
	child, err := c.Split(r.ctx, ranks, comm.SplitName(fmt.Sprintf("comm%d", mine)), comm.SplitTimeout(r.p.timeout(s.On)))
	if err != nil || mine < 0 {
		return err
	}
	r.comms[mine] = child
	return child.SetTimeout(r.p.timeout(mine))
}

func indexOf(list []int, x int) int {
	for i, y := range list {
		if x == y {
			return i
		}
	}
	return -1
}

// patience is how long what only two ranks do may take: longer than collectives of any communicator, so that a rank
// that waits in one for the culprit is not taken for it.
func (r *rank) patience() comm.Option {
	longest := time.Duration(0)
	for on := range r.p.Comms {
		longest = max(longest, r.p.timeout(on))
	}
	return comm.Timeout(2 * longest)
}

// vector makes a tensor of rank from's values, or, for -1, of none yet.
func (r *rank) vector(c *comm.Comm, s *step, from int) (*tensor.Tensor, error) {
	x, err := allocate(c, dtype.Int32, s.Count, s.Shared)
	if err == nil && from >= 0 {
		fill(raw(x), dtype.Int32, r.message(s, from))
	}
	return x, err
}

// message is what rank from of a communicator sends.
func (r *rank) message(s *step, from int) func(i int) int {
	return func(i int) int { return (from*31 + i*5 + s.Salt) % 256 }
}

func (r *rank) received(s *step, x *tensor.Tensor, from int) error {
	if bad := differs(raw(x), dtype.Int32, r.message(s, from)); bad != "" {
		return &wrongError{fmt.Sprintf("from rank %d: %s", from, bad)}
	}
	return nil
}

func (r *rank) ring(c *comm.Comm, s *step, tag int) error {
	me, n := c.Rank(), c.Size()
	out, err := r.vector(c, s, me)
	if err != nil {
		return err
	}
	defer out.Free()
	in, err := r.vector(c, s, -1)
	if err != nil {
		return err
	}
	defer in.Free()
	from := (me + n - 1) % n
	b := c.Batch()
	b.Send(out, (me+1)%n, comm.Tag(tag))
	b.Recv(in, from, comm.Tag(tag))
	if err := b.Issue(r.ctx, r.patience()); err != nil {
		return err
	}
	return r.received(s, in, from)
}

func (r *rank) anySource(c *comm.Comm, s *step, tag int) error {
	me, n := c.Rank(), c.Size()
	if me != s.Root {
		out, err := r.vector(c, s, me)
		if err != nil {
			return err
		}
		defer out.Free()
		return c.Send(r.ctx, out, s.Root, comm.Tag(tag), r.patience())
	}
	in, err := r.vector(c, s, -1)
	if err != nil {
		return err
	}
	defer in.Free()
	seen := make([]bool, n)
	for range n - 1 {
		from := -1
		if err := c.Recv(r.ctx, in, comm.AnySource, comm.Tag(tag), comm.From(&from), r.patience()); err != nil {
			return err
		}
		if from < 0 || from >= n || seen[from] {
			return &wrongError{fmt.Sprintf("a message of rank %d", from)}
		}
		seen[from] = true
		if err := r.received(s, in, from); err != nil {
			return err
		}
	}
	return nil
}

// window has each rank put a message into the window of the next, signal it, and read it back.
func (r *rank) window(c *comm.Comm, s *step) (err error) {
	me, n := c.Rank(), c.Size()
	size := max(1, s.Count)
	small := *s
	small.Count = size
	mine, err := r.vector(c, &small, -1)
	if err != nil {
		return err
	}
	w, err := c.NewWindow(r.ctx, mine)
	if err != nil {
		mine.Free()
		return err
	}
	defer func() {
		if err == nil {
			err = w.Close(r.ctx)
		}
		if err == nil {
			mine.Free() // else a rank may still write to it
		}
	}()
	out, err := r.vector(c, &small, me)
	if err != nil {
		return err
	}
	defer out.Free()
	from, to := (me+n-1)%n, (me+1)%n
	if err := w.Put(r.ctx, out, comm.Target{Rank: to}, r.patience()); err != nil {
		return err
	}
	if err := w.Signal(r.ctx, to, 0, r.patience()); err != nil {
		return err
	}
	if err := w.WaitSignal(r.ctx, from, 0, r.patience()); err != nil {
		return err
	}
	if err := r.received(&small, mine, from); err != nil {
		return err
	}
	back, err := r.vector(c, &small, -1)
	if err != nil {
		return err
	}
	defer back.Free()
	if err := w.Get(r.ctx, back, comm.Target{Rank: to}, r.patience()); err != nil {
		return err
	}
	if err := r.received(&small, back, me); err != nil {
		return err
	}
	return w.Fence(r.ctx, -1, r.patience()) // so that Close needs the other ranks for its barrier only
}
