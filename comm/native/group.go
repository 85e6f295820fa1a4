package native

import (
	"context"
	"errors"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/native/members"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
)

// group is one rank's part of one communicator. It implements backend.Backend.
type group struct {
	members.Group
	world    *world
	settings settings
	machine  plan.Machine

	// Shared by the ranks of this host.
	placer     fabric.Placer
	topo       *plan.Topology
	stageBytes int

	// Owned by the collective under way.
	seq        uint64
	purpose    base.Purpose
	req        plan.Request
	job        job
	current    *compiled
	entered    bool     // the others of this host have been told
	mappable   bool     // this rank's buffers can be mapped
	prog       *program // which runs, as far as that's known
	done       int      // its steps that have run
	last       pattern  // of the last collective
	repeated   bool     // the one under way is that one again
	programs   programs
	scratch    base.Scratch
	base       []unsafe.Pointer // by baseOf
	bound      bool             // the base table is filled
	recvTmp    unsafe.Pointer
	dsts, srcs []unsafe.Pointer
	msgs       []*fabric.Msg
	posted     []*step
	met        []bool // ranks that messages were exchanged with
	storing    storing
	apart      bool // the cores are far apart, as all ranks agree
	tunings    tunings

	said fabric.Desc // what messages describe the operation as
	past uint64      // condenses what messages have described before: see fabric.Desc.Link

	splits     splits
	registered registry
	traffic    traffic
	windows    base.Windows
	transfers  base.Transfers
}

// Capabilities implements backend.Backend.
func (g *group) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name: Name, Devices: []string{"cpu"}, Windows: true, SharedMem: g.placer != nil, Abort: true, AnySource: true,
		Tags: true, InProcess: true, LocalSize: g.localSize(),
	}
}

// Submit implements backend.Backend.
func (g *group) Submit(op *backend.Op) error {
	if op.Kind.PointToPoint() {
		return g.transfers.Post(op)
	}
	if g.Raised() {
		err := g.Err(g.whereIs(op))
		g.seq++
		op.Seq = g.seq // the number that it would have had, for a comparison of the ranks' records
		return err
	}
	g.entered = false
	g.scratch.Reset()
	if g.repeated = g.repeats(op); !g.repeated {
		if err := g.arrange(op); err != nil {
			return g.invalid(op, err)
		}
	}
	// From here on the others may count on this rank: every failure is theirs, too.
	g.seq++
	op.Seq, g.job.pieces = g.seq, op.Pieces
	if g.Space == nil || len(g.Local) < len(g.Members) || !g.repeated && base.Prepares(op) || !g.Space.Ready(g.seq) {
		return nil // it takes a while, perhaps forever
	}
	if err := g.enter(op); err != nil {
		return g.failCollective(op, err)
	}
	return nil
}

// Wait implements backend.Backend.
func (g *group) Wait(op *backend.Op) error {
	if op.Kind.PointToPoint() {
		return g.transfers.Complete(op)
	}
	var err error
	if !g.entered {
		if err = g.job.Prepare(op, &g.scratch); err == nil {
			err = g.enter(op)
		}
	}
	if err == nil {
		err = g.run(op)
	}
	if err != nil {
		return g.failCollective(op, err)
	}
	g.job.Unpack()
	g.forget()
	g.Ended(g.seq)
	return nil
}

// Assembled implements backend.Assembler.
func (g *group) Assembled() bool {
	return len(g.Members) == 1 || g.entered && g.Space.Assembled()
}

// failCollective ends a collective that has failed with err.
func (g *group) failCollective(op *backend.Op, err error) error {
	err = g.Explain(op, err)
	g.withdraw() // only now, so that the others get the reason first
	g.job.pieces = nil
	return g.settle(op, err)
}

// arrange finds the programs of an operation, and fills the job.
func (g *group) arrange(op *backend.Op) error {
	q, j := &g.req, &g.job
	g.last = pattern{}
	t, err := g.tune(op)
	if err != nil {
		return err
	}
	g.request(op, t, q, j)
	c, err := g.lookup(q, t)
	if err != nil {
		return err
	}
	j.desc = *g.describe(op, c, j.DType)
	g.current = c
	g.last = g.patternOf(op)
	return nil
}

// pattern is what an operation has in common with the last one if it's that one again, perhaps on other memory: then
// all that was arranged for it still holds.
type pattern struct {
	kind   backend.Kind // 0: nothing is known of the last operation
	reduce backend.ReduceKind
	dt     dtype.DType
	n      int
	root   int
	same   bool // input and output are the same memory
}

// patternOf returns the zero value for operations with hints or of the communicator's own, for those on lists, and for
// those that Prepare has work with.
func (g *group) patternOf(op *backend.Op) pattern {
	if op.Hints != nil || g.purpose != 0 {
		return pattern{}
	}
	switch op.Kind {
	case backend.Barrier:
		return pattern{kind: op.Kind}
	case backend.Broadcast:
		return pattern{kind: op.Kind, dt: op.Out.DType(), n: op.Out.NumEl(), root: op.Root}
	case backend.AllReduce:
		if op.Reduce.Kind == backend.PremulSumKind {
			break
		}
		return pattern{kind: op.Kind, reduce: op.Reduce.Kind, dt: op.In.DType(), n: op.In.NumEl(),
			same: op.In.Pointer() == op.Out.Pointer()}
	}
	return pattern{}
}

// repeats reports whether the operation is the last one again, and then fills the job. It compares field by field what
// patternOf returns: a struct that was just written in parts is slow to read as a whole.
func (g *group) repeats(op *backend.Op) bool {
	r, j := &g.last, &g.job
	if r.kind != op.Kind || op.Hints != nil || g.purpose != 0 {
		return false
	}
	switch op.Kind {
	case backend.Barrier:
		return true
	case backend.Broadcast:
		if op.Root != r.root || op.Out.DType() != r.dt || op.Out.NumEl() != r.n {
			return false
		}
		if j.Out = op.Out.Pointer(); g.Rank == op.Root {
			j.In = j.Out
		}
		return true
	case backend.AllReduce:
		in, out := op.In.Pointer(), op.Out.Pointer()
		if op.Reduce.Kind != r.reduce || op.In.DType() != r.dt || op.In.NumEl() != r.n || in == out != r.same {
			return false
		}
		j.In, j.Out = in, out
		return true
	}
	return false
}

// forget keeps no buffer of an operation that is done alive.
func (g *group) forget() {
	g.job.In, g.job.Out, g.job.pieces = nil, nil, nil
	if !g.bound {
		return // they are nowhere else
	}
	g.bound = false
	blank(g.dsts)
	blank(g.srcs)
	n := len(g.Members)
	if g.current.mapped != nil {
		blank(g.base[:baseOf(plan.Out, n, n)])
		return
	}
	g.base[baseOf(plan.In, g.Rank, n)], g.base[baseOf(plan.Out, g.Rank, n)] = nil, nil
}

// blank empties a few words, for which clear takes longer.
func blank(ps []unsafe.Pointer) {
	for i := 0; i < len(ps); i++ {
		ps[i] = nil
	}
}

// invalid reports an operation that was refused before anything moved.
func (g *group) invalid(op *backend.Op, err error) error {
	refused := &backend.InvalidArgumentError{Where: g.whereIs(op), Detail: err.Error()}
	g.Refused(refused.Op, refused)
	return refused
}

// Refused implements backend.Messenger.
func (g *group) Refused(op string, why error) { g.Refusal.Set(g.seq+1, op, why) }

func (g *group) whereIs(op *backend.Op) backend.Where {
	at := g.Of(op)
	if !op.Kind.PointToPoint() && g.purpose != 0 {
		at.Op = g.purpose.String()
	}
	return at
}

// Finalize implements backend.Backend.
func (g *group) Finalize(ctx context.Context) error {
	var errs []error
	if err := g.CheckLast(); err != nil {
		errs = append(errs, err)
	}
	healthy := g.End()
	if healthy {
		g.AnnounceLeave(g.seq, g.met)
	}
	g.windows.End()
	if g.Space != nil {
		g.Space.Leave(!healthy, g.WhyLeaving())
		errs = append(errs, g.Space.Close())
	}
	errs = append(errs, g.world.leave(ctx, g))
	if late := g.LateMismatch(); late != nil && !errors.Is(errors.Join(errs...), backend.ErrMismatch) {
		errs = append(errs, late)
	}
	g.scratch.Free()
	return errors.Join(errs...)
}
