package native

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
)

// group is one rank's part of one communicator. It implements backend.Backend.
type group struct {
	base.Life
	world    *world
	id       uint32
	rank     int
	members  []int // fabric rank of each rank
	settings settings
	machine  plan.Machine

	fabricToRank map[int]int // of members whose two ranks differ

	// Shared by the ranks of this host; space is nil if no host has two ranks.
	space      *fabric.Space
	placer     fabric.Placer
	topo       *plan.Topology
	local      []int // ranks on this host, in the order of the space's members
	localIndex []int // their index there; -1 for ranks elsewhere
	stageBytes int

	// Owned by the collective under way.
	waiter     *fabric.Waiter
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
	why        string // why this rank leaves, if it says so
	toAll      bool   // all others are told, not only those with which messages were exchanged
	storing    storing
	apart      bool // the cores are far apart, as all ranks agree
	tunings    tunings

	said      fabric.Desc   // what messages describe the operation as
	past      uint64        // condenses what messages have described before: see fabric.Desc.Link
	announced atomic.Uint64 // last operation known to have sent messages

	status     statusBoard
	departures departures
	controls   controlQueue
	refusal    base.Refusal
	splits     splits
	awaited    awaited
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
	op.Seq = g.seq
	if g.space == nil || len(g.local) < len(g.members) || !g.repeated && base.Prepares(op) || !g.space.Ready(g.seq) {
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
	return len(g.members) == 1 || g.entered && g.space.Assembled()
}

// failCollective ends a collective that has failed with err.
func (g *group) failCollective(op *backend.Op, err error) error {
	err = g.broken(op, err)
	g.withdraw() // only now, so that the others get the reason first
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
		if j.Out = op.Out.Pointer(); g.rank == op.Root {
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
	g.job.In, g.job.Out = nil, nil
	if !g.bound {
		return // they are nowhere else
	}
	g.bound = false
	blank(g.dsts)
	blank(g.srcs)
	n := len(g.members)
	if g.current.mapped != nil {
		blank(g.base[:baseOf(plan.Out, n, n)])
		return
	}
	g.base[baseOf(plan.In, g.rank, n)], g.base[baseOf(plan.Out, g.rank, n)] = nil, nil
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

func (g *group) whereIs(op *backend.Op) backend.Where {
	at := g.Of(op)
	if !op.Kind.PointToPoint() && g.purpose != 0 {
		at.Op = g.purpose.String()
	}
	return at
}

// broken turns the failure of a collective into a typed error, breaks the
// communicator with it and tells the other ranks.
func (g *group) broken(op *backend.Op, err error) error {
	if p, ok := errors.AsType[*fabric.PanicError](err); ok {
		return g.Panicked(g.whereIs(op), p)
	}
	g.awaitReason(err)
	if g.Raised() {
		return g.withAttendance(g.Err(g.whereIs(op)), op)
	}
	at := g.whereIs(op)
	var typed error
	var left *fabric.LeftError
	if errors.As(err, &left) {
		typed = &backend.PeerLostError{Where: at, Peer: g.rankOf(left.Peer), Cause: departed(left)}
	} else if lost := (*fabric.PeerError)(nil); errors.Is(err, fabric.ErrLeft) && errors.As(err, &lost) {
		typed = g.peerLeft(op, lost.Peer)
	}
	if mm := (*fabric.MismatchError)(nil); errors.As(err, &mm) && mm.Local.Same(&mm.Remote) {
		typed = g.disagreedEarlier(mm.Peer, mm.Local, mm.Remote, cmp.Or(mm.Seq, op.Seq))
	}
	if typed == nil {
		typed = g.CauseOf(at, op.Ctx, &g.job.Job, g.rankOf, err, func() error { return g.timedOut(op) })
	}
	if aborted, ok := typed.(*backend.AbortedError); ok && aborted.By < 0 {
		aborted.By = g.withdrawer()
	}
	if gone, ok := typed.(*backend.PeerLostError); ok && (left == nil || !left.Failed) {
		g.controls.lost(gone.Peer, gone.Cause) // as on the others, which get the report: all must look for the same survivors
	}
	if left != nil {
		g.FailFrom(left.After+1, typed)
	} else {
		g.Fail(typed)
	}
	return g.withAttendance(g.Err(g.whereIs(op)), op)
}

// awaitReason gives the others' report of a failure time to come. A rank that has got the report
// withdraws its messages and may leave at once, and this rank may notice that before the report.
func (g *group) awaitReason(err error) {
	var left *fabric.LeftError
	switch {
	case errors.As(err, &left):
		if left.Failed {
			g.AwaitReport()
		}
	case errors.Is(err, fabric.ErrLeft), errors.Is(err, fabric.ErrCanceled):
		g.AwaitReport()
	case errors.Is(err, fabric.ErrClosing):
		g.awaitReports()
	}
}

// awaitReports is AwaitReport for a peer that has most likely died. When all others have answered, any report of theirs
// has come. One of the peer itself came before it closed.
func (g *group) awaitReports() {
	if len(g.members) <= maxAsked {
		g.ask(0, g.others(), base.ReportTime, g.Broken())
		if !g.Breaking() {
			return
		}
	}
	g.AwaitReport()
}

// mismatch states both sides of a disagreement.
func (g *group) mismatch(peer int, local, remote fabric.Desc, seq uint64) error {
	return g.Disagreement(g.rankOf(peer), &local, &remote, seq)
}

// withdrawer returns the rank that withdrew a message of the operation under way, or -1.
func (g *group) withdrawer() int {
	for _, m := range g.msgs[:len(g.posted)] {
		if m.Done() && errors.Is(m.Err, fabric.ErrCanceled) {
			return g.rankOf(m.From)
		}
	}
	return -1
}

// rankOf translates a fabric's rank into this communicator's; -1 if it's not a member.
func (g *group) rankOf(fabricRank int) int {
	if g.member(fabricRank) == fabricRank {
		return fabricRank
	}
	if r, ok := g.fabricToRank[fabricRank]; ok {
		return r
	}
	return -1
}

// member translates this communicator's rank into the fabric's; -1 if there is none.
func (g *group) member(rank int) int {
	if rank < 0 || rank >= len(g.members) {
		return -1
	}
	return g.members[rank]
}

// lose breaks the communicator because of a link on which this rank waited, and returns the error.
func (g *group) lose(at backend.Where, peer int, err error) error {
	typed := base.LossOf(at, peer, err)
	if gone, ok := typed.(*backend.PeerLostError); ok {
		g.controls.lost(peer, gone.Cause) // the others are told; all must look for the same survivors
	}
	g.Fail(typed)
	return typed
}

// Finalize implements backend.Backend.
func (g *group) Finalize(ctx context.Context) error {
	var errs []error
	if err := g.checkLast(); err != nil {
		errs = append(errs, err)
	}
	healthy := g.End()
	if healthy {
		g.announceLeave()
	}
	g.windows.End()
	if g.space != nil {
		g.space.Leave(!healthy, g.why)
		errs = append(errs, g.space.Close())
	}
	errs = append(errs, g.world.leave(ctx, g))
	if late := g.lateMismatch(); late != nil && !errors.Is(errors.Join(errs...), backend.ErrMismatch) {
		errs = append(errs, late)
	}
	g.scratch.Free()
	return errors.Join(errs...)
}
