package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// Campaign says which rounds to run.
type Campaign struct {
	Mode    Mode
	Rounds  int
	Seed    uint64      // of the first round; each of the others has the next number
	Repeat  bool        // all rounds have the first one's seed
	Faults  []FaultKind // to draw from; nil: all
	Fabrics []string    // to draw from in real rounds; nil: all
	Jobs    int         // rounds at a time
	Load    int         // processes that keep a core busy each, beside real rounds
	Command []string    // starts a process that calls Work on its standard input and output
	OnRound func(done int, o *Outcome)
}

// errStopped ends a round that the end of the campaign's context has stopped in its middle: nothing can be said of it.
var errStopped = errors.New("chaos: the campaign was stopped")

// Run runs the rounds and sums up what came of them. If ctx ends, or with an error, it's those that were done by then,
// fewer than c.Rounds.
func (c Campaign) Run(ctx context.Context) (*Result, error) {
	r := &runner{Campaign: c, ctx: ctx, results: newResult(c)}
	if c.Mode == Real {
		server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
		if err != nil {
			return nil, err
		}
		defer server.Close()
		r.store = fmt.Sprintf("127.0.0.1:%d", server.Port())
	}
	idle, err := c.load()
	if err != nil {
		return nil, err
	}
	defer idle()
	begin := time.Now()
	var all sync.WaitGroup
	for range max(1, min(c.Jobs, c.Rounds)) {
		all.Go(r.rounds)
	}
	all.Wait()
	for _, p := range r.idle {
		p.end()
	}
	r.results.end(time.Since(begin))
	return r.results, r.err
}

// A runner is a campaign under way.
type runner struct {
	Campaign
	ctx   context.Context
	store string

	mu      sync.Mutex
	next    int
	done    int
	idle    []*process
	results *Result
	err     error
}

// rounds runs rounds until there are no more.
func (r *runner) rounds() {
	for {
		r.mu.Lock()
		i := r.next
		over := i == r.Rounds || r.err != nil || r.ctx.Err() != nil
		if !over {
			r.next++
		}
		r.mu.Unlock()
		if over {
			return
		}
		seed := r.Seed
		if !r.Repeat {
			seed += uint64(i)
		}
		p := Make(r.Mode, seed, r.Faults, r.Fabrics)
		o := &Outcome{Program: &p, Reports: make([]*Report, p.Size)}
		var err error
		if r.Mode == Virtual {
			err = r.virtual(o)
		} else if p.Fault.Kind.ofLaunchers() {
			err = r.launchers(o, i)
		} else if p.Fault.Kind == LeftOut {
			err = r.leftOut(o, i)
		} else if p.Fault.Kind == Stale {
			err = r.stale(o, i)
		} else {
			err = r.real(o, i)
		}
		r.mu.Lock()
		if err != nil {
			if !errors.Is(err, errStopped) {
				r.err = errors.Join(r.err, err)
			}
			r.mu.Unlock()
			return
		}
		o.judge()
		r.results.add(o)
		r.done++
		if r.OnRound != nil {
			r.OnRound(r.done, o)
		}
		r.mu.Unlock()
	}
}

// take returns n idle processes, new ones if there are not enough.
func (r *runner) take(n int) ([]*process, error) {
	r.mu.Lock()
	k := min(n, len(r.idle))
	ps := append([]*process(nil), r.idle[len(r.idle)-k:]...)
	r.idle = r.idle[:len(r.idle)-k]
	r.mu.Unlock()
	for len(ps) < n {
		p, err := start(r.Command)
		if err != nil {
			r.give(ps...)
			return nil, fmt.Errorf("chaos: starting a process: %w", err)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

func (r *runner) give(ps ...*process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, ps...)
}

func (r *runner) task(p *Program) task {
	return task{Mode: r.Mode, Seed: p.Seed, Faults: r.Faults, Fabrics: r.Fabrics, Store: r.store,
		Loaded: r.Load > 0}
}

// watchdog bounds a virtual round in real time: goroutines that never rest keep its clock from moving.
const watchdog = time.Minute

func (r *runner) virtual(o *Outcome) error {
	ps, err := r.take(1)
	if err != nil {
		return err
	}
	p := ps[0]
	if err := p.tasks.Encode(r.task(o.Program)); err == nil {
		timer := time.NewTimer(watchdog)
		defer timer.Stop()
		select {
		case a, ok := <-p.answers:
			if ok {
				o.Reports, o.Stuck = a.Reports, a.Stuck
				if a.Stuck == "" {
					r.give(p)
				} else {
					p.end() // its goroutines may be in the way of the next round
				}
				return nil
			}
		case <-timer.C:
			p.signal(syscall.SIGQUIT)
		case <-r.ctx.Done():
			p.signal(syscall.SIGKILL)
			p.end()
			return errStopped
		}
	}
	p.end()
	o.Stuck = "the process ended: " + p.errors.String()
	return nil
}

// realBudget bounds a real round: more than all that its operations may wait for.
const realBudget = 2 * time.Minute

// dumping is how long a process that hangs has to say what it does.
const dumping = 3 * time.Second

func (r *runner) real(o *Outcome, round int) error {
	ps, err := r.take(o.Program.Size)
	if err != nil {
		return err
	}
	t := r.task(o.Program)
	t.Name = fmt.Sprintf("round%d", round)
	left, err := r.ranks(o, ps, t)
	r.give(left...)
	return err
}

// ranks has processes carry out a task of a real round, one rank each, and returns those that are there when it's done.
func (r *runner) ranks(o *Outcome, ps []*process, t task) (left []*process, err error) {
	j := job{o: o, ps: ps, gone: make([]bool, o.Program.Size)}
	over := make(chan struct{})
	defer close(over)
	words := j.start(t, over)
	limit := time.NewTimer(realBudget)
	defer limit.Stop()
	stop := syscall.SIGQUIT // has a program write its stacks
	for j.waits() {
		select {
		case w := <-words:
			j.heard(w)
		case <-limit.C:
			for rank, proc := range ps {
				if o.Reports[rank] == nil && !j.gone[rank] {
					proc.signal(stop)
				}
			}
			stop = syscall.SIGKILL
			limit.Reset(dumping)
		case <-r.ctx.Done():
			for _, proc := range ps {
				proc.signal(syscall.SIGKILL)
			}
			return nil, errStopped
		}
	}
	for rank, proc := range ps {
		if o.Reports[rank] != nil {
			left = append(left, proc)
			continue
		}
		proc.signal(syscall.SIGKILL)
		go func() {
			for range proc.answers {
			}
		}()
	}
	return left, nil
}

// job is a program that processes run.
type job struct {
	o     *Outcome
	ps    []*process
	gone  []bool // by rank: the process has ended
	fired bool   // the fault has
}

// word is an answer of a rank's process, or the end of them.
type word struct {
	rank int
	a    answer
	ok   bool
}

// start gives each process its task. The answers come until over is closed.
func (j *job) start(t task, over <-chan struct{}) <-chan word {
	words := make(chan word)
	for rank, proc := range j.ps {
		t.Rank = rank
		proc.tasks.Encode(t) // a process that is gone tells by the end of its answers
		go func() {
			for {
				a, ok := <-proc.answers
				select {
				case words <- word{rank, a, ok}:
				case <-over:
					return
				}
				if !ok || a.Reports != nil {
					return
				}
			}
		}()
	}
	return words
}

// dead reports whether the fault has killed a rank, or stopped it for good.
func (j *job) dead(rank int) bool {
	f := &j.o.Program.Fault
	return j.fired && f.dead() && rank == f.Rank
}

// waits reports whether a rank may yet answer.
func (j *job) waits() bool {
	for rank := range j.ps {
		if j.o.Reports[rank] == nil && !j.gone[rank] && !j.dead(rank) {
			return true
		}
	}
	return false
}

// heard notes what a rank's process has answered.
func (j *job) heard(w word) {
	o, f := j.o, &j.o.Program.Fault
	switch {
	case !w.ok:
		j.gone[w.rank] = true
		if !j.dead(w.rank) {
			o.Stuck += fmt.Sprintf("the process of rank %d ended: %s\n", w.rank, j.ps[w.rank].errors.String())
		}
	case w.a.Reports != nil:
		o.Reports[w.rank] = w.a.Reports[0]
	default:
		j.fired = true
		o.struck = w.a.Fired
		if f.Kind == Pause {
			time.AfterFunc(f.Delay, func() { j.ps[w.rank].signal(syscall.SIGCONT) })
		}
	}
}
