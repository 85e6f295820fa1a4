package native

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
)

// transfer is a posted send or receive.
type transfer struct {
	msg    fabric.Msg
	waiter *fabric.Waiter
}

// postTransfer posts a Send or Recv; its description tells the other side dtype and count.
func (g *group) postTransfer(op *backend.Op) error {
	if g.abort.Raised() {
		return g.relocate(g.abort.Cause(), op)
	}
	t, _ := g.p2p.Get().(*transfer)
	if t == nil {
		t = &transfer{waiter: fabric.NewWaiter(g.abort)}
	}
	op.State = t
	m := &t.msg
	t.waiter.Begin(op.Ctx, op.Timeout)
	m.Reset(t.waiter)
	m.Key = fabric.Key{Comm: g.id, Lane: fabric.PointToPoint, Tag: uint64(op.Tag)}
	m.Peer = g.anySource()
	if op.Peer != backend.AnySource {
		m.Peer = g.members[op.Peer]
	}
	x := op.In
	if op.Kind == backend.Recv {
		x = op.Out
	}
	m.Buf, m.Len = x.Pointer(), x.NBytes()
	m.Desc = fabric.Desc{byte(op.Kind), byte(x.DType())}
	binary.LittleEndian.PutUint64(m.Desc[8:], uint64(x.NumEl()))
	if op.Kind == backend.Send {
		g.world.fab.Send(m)
	} else {
		g.world.fab.Recv(m)
	}
	return nil
}

// anySource is the fabric's name for all members of the communicator. One that is alone hears of nobody else: the fabric gives
// up for it when all others are gone, which are no members.
func (g *group) anySource() int {
	if len(g.members) == 1 {
		return g.members[0]
	}
	return fabric.AnySource
}

// Wait implements backend.Backend: it completes a posted Send or Recv.
func (g *group) Wait(op *backend.Op) error {
	t := op.State.(*transfer)
	op.State = nil
	err := g.world.fab.Wait(&t.msg, t.waiter)
	if err != nil {
		if !t.msg.Done() {
			g.world.fab.Cancel(&t.msg)
		}
		if t.msg.Err == nil {
			err = nil // it completed before it could be withdrawn
		}
	}
	op.From = backend.AnySource
	if err == nil {
		op.From = g.rankOf(t.msg.From)
	}
	err = g.transferError(op, t, err)
	t.msg.Buf = nil
	g.p2p.Put(t)
	return err
}

// transferError makes a typed error of a failed transfer. Only a lost peer or an
// abort breaks the communicator, or a context that panics: other ranks aren't concerned by the rest.
func (g *group) transferError(op *backend.Op, t *transfer, err error) error {
	m := &t.msg
	if err == nil {
		if op.Kind == backend.Recv && (m.N != m.Len || m.Sent[1] != m.Desc[1]) {
			return g.unequal(op, m)
		}
		return nil
	}
	at := g.whereIs(op)
	if p, ok := errors.AsType[*fabric.PanicError](err); ok {
		return g.panicked(at, p)
	}
	var lost *fabric.PeerError
	var long *fabric.TruncatedError
	g.awaitReason(err)
	switch {
	case errors.As(err, &long):
		return g.unequal(op, m)
	case g.abort.Raised():
		return g.relocate(g.abort.Cause(), op)
	case errors.As(err, &lost):
		peer := g.rankOf(lost.Peer)
		why := lost
		if op.Peer == backend.AnySource { // everyone is gone; the fabric knows who closed first, which may be one that somebody else had left
			if who := g.world.culprit(g); who >= 0 {
				peer = who
			}
			if len(g.members) > 2 {
				why = &fabric.PeerError{Peer: lost.Peer, Err: fmt.Errorf("%w, and nobody else is left", lost.Err)}
			}
		}
		if peer < 0 { // then any member is
			peer = (g.rank + 1) % len(g.members)
		}
		return g.lose(at, peer, why)
	case errors.Is(err, fabric.ErrTimeout), op.Ctx.Err() == context.DeadlineExceeded:
		e := &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: t.waiter.Elapsed()}}
		if op.Peer != backend.AnySource {
			e.Missing = []int{op.Peer}
		}
		return e
	case op.Ctx.Err() != nil:
		return &backend.CanceledError{Where: at, Err: err}
	case errors.Is(err, fabric.ErrCanceled):
		return &backend.AbortedError{Where: at, By: g.rankOf(m.From), Reason: withdrew}
	case errors.Is(err, fabric.ErrClosed):
		return &backend.FinalizedError{Where: at}
	}
	return &backend.InternalError{Where: at, Err: err}
}

// withdrew is what a rank did whose message ends in its middle.
const withdrew = "it withdrew the message on its way"

// unequal states what was sent and what was to be received.
func (g *group) unequal(op *backend.Op, m *fabric.Msg) error {
	side := func(d fabric.Desc) string {
		return fmt.Sprintf("%v(%v[%d])", backend.Kind(d[0]), dtype.DType(d[1]), binary.LittleEndian.Uint64(d[8:]))
	}
	e := &backend.MismatchError{Where: g.whereIs(op), RankA: g.rankOf(m.From), RankB: g.rank, OpA: side(m.Sent), OpB: side(m.Desc)}
	return e
}
