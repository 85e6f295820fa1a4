package members

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// Explain turns the failure of a collective into a typed error, breaks the
// communicator with it and tells the other ranks.
func (g *Group) Explain(op *backend.Op, err error) error {
	if p, ok := errors.AsType[*fabric.PanicError](err); ok {
		return g.Panicked(g.own.At(op), p)
	}
	g.AwaitReason(err)
	if g.Raised() {
		return g.withAttendance(g.Err(g.own.At(op)), op)
	}
	at := g.own.At(op)
	var typed error
	var left *fabric.LeftError
	if errors.As(err, &left) {
		typed = &backend.PeerLostError{Where: at, Peer: g.RankOf(left.Peer), Cause: Departed(left)}
	} else if lost := (*fabric.PeerError)(nil); errors.Is(err, fabric.ErrLeft) && errors.As(err, &lost) {
		typed = g.peerLeft(op, lost.Peer)
	}
	if mm := (*fabric.MismatchError)(nil); errors.As(err, &mm) && mm.Local.Same(&mm.Remote) {
		typed = g.disagreedEarlier(mm.Peer, mm.Local, mm.Remote, cmp.Or(mm.Seq, op.Seq))
	}
	if typed == nil {
		_, job, _, _ := g.own.UnderWay()
		typed = g.CauseOf(at, op.Ctx, job, g.RankOf, err, func() error { return g.timedOut(op) })
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
	return g.withAttendance(g.Err(g.own.At(op)), op)
}

// AwaitReason gives the others' report of a failure time to come. A rank that has got the report
// withdraws its messages and may leave at once, and this rank may notice that before the report.
func (g *Group) AwaitReason(err error) {
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
func (g *Group) awaitReports() {
	if len(g.Members) <= MaxAsked {
		g.ask(0, g.others(), base.ReportTime, g.Broken())
		if !g.Breaking() {
			return
		}
	}
	g.AwaitReport()
}

// MismatchWith states both sides of a disagreement.
func (g *Group) MismatchWith(peer int, local, remote fabric.Desc, seq uint64) error {
	return g.Disagreement(g.RankOf(peer), &local, &remote, seq)
}

// withdrawer returns the rank that withdrew a message of the operation under way, or -1.
func (g *Group) withdrawer() int {
	by := -1
	g.own.Posted(func(m *fabric.Msg, _ int, _ bool) {
		if by < 0 && m.Done() && errors.Is(m.Err, fabric.ErrCanceled) {
			by = g.RankOf(m.From)
		}
	})
	return by
}

// LoseLink breaks the communicator because of a link on which this rank waited, and returns the error.
func (g *Group) LoseLink(at backend.Where, peer int, err error) error {
	typed := base.LossOf(at, peer, err)
	if gone, ok := typed.(*backend.PeerLostError); ok {
		g.controls.lost(peer, gone.Cause) // the others are told; all must look for the same survivors
	}
	g.Fail(typed)
	return typed
}

// Departed says how a rank has left.
func Departed(e *fabric.LeftError) string {
	if e.Failed {
		return fmt.Sprintf("it gave up in operation #%d and did not say why", e.After)
	}
	if e.Why != "" {
		return fmt.Sprintf("%s, after operation #%d", Printable(e.Why), e.After)
	}
	return fmt.Sprintf("it finalized the communicator after operation #%d", e.After)
}
