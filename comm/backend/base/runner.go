package base

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// RunnerConfig is what a Runner knows of the library under it.
type RunnerConfig struct {
	// Fabric is the library's messages between all ranks of the job: no more than a fabric must have is needed.
	// The Runner closes it.
	Fabric fabric.Fabric
	// Capabilities are those of the backend.
	Capabilities backend.Capabilities
	// Own, if it isn't nil, carries out a collective by a primitive of the library instead of a plan, and returns the
	// primitive's name; "" if the library has none for it. The decision must be the same on every rank, so it may
	// depend only on what descriptions hold. All ranks have come, with the same operation. w says when to give up; then
	// no buffer may be touched any more.
	Own func(w *fabric.Waiter, c *Collective) (name string, err error)
	// Memory, if it isn't nil, returns how a rank reaches the windows of the others of a communicator; what it can't
	// reach goes by messages. Windows exist if Capabilities say so.
	Memory func(members []int) WindowMemory
}

// Collective is an operation that a library may have a primitive for.
type Collective struct {
	Job
	Request plan.Request
	Comm    uint32 // the communicator's number, among all that the ranks have ever had
	Seq     uint64 // the operation's, in its communicator
	Members []int  // rank in the job of each rank

	Hints map[string]string // the operation's, which are the same on every rank
}

// Runner is one rank's part of a communicator, for backends over a library that has no more than messages: it
// implements backend.Backend. Its collectives are plans that need nothing else.
//
// A collective begins with a roll call, in which every rank sends its description to every other one. So a rank that
// times out knows which ranks are missing, and no rank uses data of another operation. It costs each rank a small
// message to each other one.
type Runner struct {
	Life
	world     *runners
	members   []int // rank in the job of each rank
	rank      int
	transfers Transfers
	windows   Windows

	byMessages atomic.Uint64 // collectives

	// Of the collective under way.
	waiter   *fabric.Waiter
	c        Collective // Comm, Members: always
	purpose  Purpose
	desc     fabric.Desc
	plan     *plan.Plan
	planOf   fabric.Desc
	scratch  Scratch
	base     [plan.Tmp + 1]unsafe.Pointer
	msgs     []*message
	posted   int // the first so many of msgs
	arrived  []bool
	dst, src []unsafe.Pointer
}

// message is one of a plan, or of the roll call, which has no step.
type message struct {
	fabric.Msg
	step *plan.Step
	send bool
}

// Capabilities implements backend.Backend.
func (x *Runner) Capabilities() backend.Capabilities { return x.world.lib.Capabilities }

// Submit implements backend.Backend. It begins the roll call.
func (x *Runner) Submit(op *backend.Op) error {
	if op.Kind.PointToPoint() {
		return x.transfers.Post(op)
	}
	x.c.Seq++
	op.Seq = x.c.Seq
	if x.Raised() {
		return x.Err(x.where(op))
	}
	x.c.Hints = op.Hints
	q, j := &x.c.Request, &x.c.Job
	*q = plan.Request{World: len(x.members), Rank: x.rank}
	j.Lower(op, q)
	d := Description{Kind: op.Kind, DType: j.DType, Reduce: op.Reduce.Kind, Purpose: x.purpose}
	d.Fill(&x.desc, q, hintsHash(op.Hints))
	x.scratch.Reset()
	x.waiter.Begin(op.Ctx, op.Timeout)
	for r := range x.members {
		if x.arrived[r] = r == x.rank; r != x.rank {
			x.post(nil, r, false, nil, 0)
			x.post(nil, r, true, nil, 0)
		}
	}
	return nil
}

// Wait implements backend.Backend.
func (x *Runner) Wait(op *backend.Op) error {
	if op.Kind.PointToPoint() {
		return x.transfers.Complete(op)
	}
	err := x.run(op)
	if err != nil {
		err = x.failed(op, err)
		for _, m := range x.msgs[:x.posted] { // only now, so that the others get the reason first
			if !m.Done() {
				x.world.fab.Cancel(&m.Msg)
			}
		}
	}
	for _, m := range x.msgs[:x.posted] {
		m.Buf, m.step = nil, nil
	}
	x.posted, x.base, x.c.In, x.c.Out = 0, [plan.Tmp + 1]unsafe.Pointer{}, nil, nil
	if err == nil {
		x.Ended(op.Seq)
	}
	return err
}

func (x *Runner) run(op *backend.Op) error {
	if err := x.complete(); err != nil {
		return err
	}
	if err := x.c.Prepare(op, &x.scratch); err != nil {
		return err
	}
	if own := x.world.lib.Own; own != nil && len(x.members) > 1 {
		name, err := own(x.waiter, &x.c)
		if err != nil {
			return err
		}
		op.Algorithm = name
	}
	if op.Algorithm == "" {
		if err := x.choose(); err != nil {
			return err
		}
		op.Algorithm = x.plan.Algorithm
		if len(x.members) > 1 {
			x.byMessages.Add(1)
		}
		if err := x.execute(x.plan); err != nil {
			return err
		}
	}
	x.c.Unpack()
	return nil
}

// hintsHash condenses an operation's hints; 0 for none.
func hintsHash(hints map[string]string) uint64 {
	if len(hints) == 0 {
		return 0
	}
	h := wire.HashStart
	for _, name := range slices.Sorted(maps.Keys(hints)) {
		for _, text := range [2]string{name, hints[name]} {
			for i := range len(text) {
				h = wire.HashAdd(h, uint64(text[i]))
			}
			h = wire.HashAdd(h, uint64(len(text)))
		}
	}
	return h
}

// choose makes the plan of an operation, unless it's the last one's.
func (x *Runner) choose() error {
	q := x.c.Request
	if x.plan != nil && x.planOf == x.desc && x.plan.Request.InPlace == q.InPlace && q.SendCounts == nil {
		return nil
	}
	x.plan = nil
	a, err := plan.Select(q, plan.DefaultMachine(), "", func(a plan.Algorithm) bool { return !a.OneSided && !a.Mapped })
	if err != nil {
		return err
	}
	x.plan, err = a.Plan(q)
	x.planOf = x.desc
	return err
}

// execute runs the steps of a plan of messages.
func (x *Runner) execute(p *plan.Plan) (err error) {
	x.base[plan.In], x.base[plan.Out] = x.c.In, x.c.Out
	if x.base[plan.Tmp], err = x.scratch.Take(p.Tmp * x.c.Elem); err != nil {
		return err
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		bytes := s.N * x.c.Elem
		switch s.Kind {
		case plan.Copy:
			for _, d := range s.Dst {
				if dst, src := x.at(d), x.at(s.Src[0]); dst != src {
					kern.Copy(dst, src, bytes)
				}
			}
		case plan.Fold:
			x.src = x.src[:0]
			for _, r := range s.Src {
				x.src = append(x.src, x.at(r))
			}
			x.fold(s)
		case plan.Send:
			x.post(s, int(s.Peer), true, x.at(s.Src[0]), bytes)
		case plan.Recv:
			x.post(s, int(s.Peer), false, x.at(s.Dst[0]), bytes)
		case plan.RecvReduce:
			buf, err := x.scratch.Take(bytes)
			if err != nil {
				return err
			}
			x.post(s, int(s.Peer), false, buf, bytes)
		case plan.Wait:
			if err := x.complete(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("algorithm %s needs more than messages: %v", p.Algorithm, s.Kind)
		}
	}
	return nil
}

func (x *Runner) at(r plan.Ref) unsafe.Pointer { return unsafe.Add(x.base[r.Buf], r.Off*x.c.Elem) }

// fold sets the step's destinations to the combination of x.src.
func (x *Runner) fold(s *plan.Step) {
	x.dst = x.dst[:0]
	for _, r := range s.Dst {
		x.dst = append(x.dst, x.at(r))
	}
	kern.Reduce(x.c.Kernel, x.c.DType, x.dst, x.src, s.N)
	if s.Final && x.c.Average {
		for _, d := range x.dst {
			kern.Average(x.c.DType, d, s.N, len(x.members))
		}
	}
}

// post hands a message to the library.
func (x *Runner) post(s *plan.Step, peer int, send bool, buf unsafe.Pointer, bytes int) {
	if x.posted == len(x.msgs) {
		x.msgs = append(x.msgs, new(message))
	}
	m := x.msgs[x.posted]
	x.posted++
	m.step, m.send = s, send
	m.Reset(x.waiter)
	m.Peer, m.Key = x.members[peer], fabric.Key{Comm: x.c.Comm, Class: fabric.Collective, Tag: x.c.Seq}
	m.Desc, m.Buf, m.Len = x.desc, buf, bytes
	if send {
		x.world.fab.Send(&m.Msg)
	} else {
		x.world.fab.Recv(&m.Msg)
	}
}

// complete waits for all that was posted, and reduces what came for that.
func (x *Runner) complete() error {
	for _, sends := range [2]bool{false, true} {
		for _, m := range x.msgs[:x.posted] {
			if m.send != sends {
				continue
			}
			if err := x.world.fab.Wait(&m.Msg, x.waiter); err != nil {
				return err
			}
			switch {
			case sends:
			case m.N != m.Len:
				return &fabric.TruncatedError{Peer: m.From, Sent: m.N, Capacity: m.Len}
			case m.step == nil:
				x.arrived[x.rankOf(m.Peer)] = true
			case m.step.Kind == plan.RecvReduce:
				x.src = append(x.src[:0], x.at(m.step.Src[0]), m.Buf)
				x.fold(m.step)
			}
		}
	}
	x.posted = 0
	return nil
}

// failed breaks the communicator with the cause of a collective's failure, and reports it to the
// others.
func (x *Runner) failed(op *backend.Op, err error) error {
	at := x.where(op)
	if p, ok := errors.AsType[*fabric.PanicError](err); ok {
		return x.Panicked(at, p)
	}
	if x.explain(err); !x.Raised() {
		x.Fail(x.CauseOf(at, op.Ctx, &x.c.Job, x.rankOf, err, func() error {
			return &backend.TimeoutError{Where: at, Attendance: x.attendance()}
		}))
	}
	return x.Err(at)
}

// attendance says which ranks have answered the roll call. If all have, the ranks whose messages don't come are
// unknown.
func (x *Runner) attendance() backend.Attendance {
	a := backend.Attendance{Elapsed: x.waiter.Elapsed()}
	for _, m := range x.msgs[:x.posted] { // the roll call is waited for in order
		if m.step == nil && !m.send && m.Done() && m.Err == nil {
			x.arrived[x.rankOf(m.Peer)] = true
		}
	}
	for r, here := range x.arrived {
		late := slices.ContainsFunc(x.msgs[:x.posted], func(m *message) bool {
			return m.step != nil && !m.send && !m.Done() && m.Peer == x.members[r]
		})
		switch {
		case !here:
			a.Missing = append(a.Missing, r)
		case late:
			a.Unknown = append(a.Unknown, r)
		default:
			a.Arrived = append(a.Arrived, r)
		}
	}
	return a
}

// explain gives the others' report of a failure time to come: a rank that has got one withdraws its messages, and may
// leave at once.
func (x *Runner) explain(err error) {
	if errors.Is(err, fabric.ErrLeft) || errors.Is(err, fabric.ErrCanceled) || errors.Is(err, fabric.ErrClosing) {
		x.AwaitReport()
	}
}

// where is Of, with what a collective of the communicator's own is for.
func (x *Runner) where(op *backend.Op) backend.Where {
	at := x.Of(op)
	if x.purpose != 0 {
		at.Op = x.purpose.String()
	}
	return at
}

// rankOf translates a rank of the job; -1 if it's no member.
func (x *Runner) rankOf(peer int) int { return slices.Index(x.members, peer) }

// Split implements backend.Backend. The first rank of a list numbers the new communicator.
func (x *Runner) Split(ctx context.Context, name string, list []int, timeout time.Duration,
	hints map[string]string) (backend.Backend, error) {
	for h := range hints {
		return nil, &backend.InvalidArgumentError{Where: x.In(ForSplit.String()),
			Detail: fmt.Sprintf("unknown hint %q; a split takes none", h)}
	}
	mine := Offer{List: list}
	if len(list) > 0 && list[0] == x.rank {
		mine.ID = x.world.newID()
	}
	offers, _, err := Offers(mine, len(x.members), backend.Op{Ctx: ctx, Timeout: timeout}, func(op *backend.Op) error {
		return x.own(ForSplit, op)
	})
	if err == nil {
		err = x.Agreed(offers)
	}
	if err != nil || len(list) == 0 {
		return nil, err
	}
	members := make([]int, len(list))
	for i, r := range list {
		members[i] = x.members[r]
	}
	return x.world.add(offers[list[0]].ID, name, members), nil
}

// own carries out a collective of the communicator's own.
func (x *Runner) own(p Purpose, op *backend.Op) error {
	x.purpose = p
	defer func() { x.purpose = 0 }()
	if err := x.Submit(op); err != nil {
		return err
	}
	return x.Wait(op)
}

// NewWindow implements backend.Windower.
func (x *Runner) NewWindow(ctx context.Context, t *tensor.Tensor, timeout time.Duration) (backend.Window, error) {
	if c := x.Capabilities(); !c.Windows {
		return nil, &backend.UnsupportedError{Where: x.In("new_window"), Detail: "backend " + c.Name + " has no windows"}
	}
	w, err := x.windows.New(ctx, t, timeout)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Number is the communicator's number, as Collective.Comm has it.
func (x *Runner) Number() uint32 { return x.c.Comm }

// Traffic implements backend.TrafficCounter, but for the collectives that Own has carried out.
func (x *Runner) Traffic() backend.Traffic {
	return backend.Traffic{Mapped: x.windows.Mapped.Load(), Staged: x.windows.Staged.Load() + x.byMessages.Load()}
}

// lost breaks the communicator because a peer is lost, and returns the error.
func (x *Runner) lost(at backend.Where, peer int, err error) error {
	typed := LossOf(at, peer, err)
	x.Fail(typed)
	return typed
}

// Finalize implements backend.Backend. The last communicator of a rank closes its links.
func (x *Runner) Finalize(ctx context.Context) error {
	x.End()
	x.windows.End()
	err := errors.Join(x.world.unregister(ctx, x), x.UnreturnedMismatch())
	x.scratch.Free()
	return err
}
