package base

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
)

// Link carries messages between ranks, as a fabric does: these four methods are a part of fabric.Fabric, which says
// what they are.
type Link interface {
	Send(m *fabric.Msg)
	Recv(m *fabric.Msg)
	Wait(m *fabric.Msg, w *fabric.Waiter) error
	Cancel(m *fabric.Msg)
}

// Transfers are the sends and receives of a communicator over a link. A message's description tells the other side
// dtype and count.
type Transfers struct {
	Life    *Life
	Link    Link
	Comm    uint32 // the communicator's number, on the link
	Members []int  // the link's number for each rank
	// RankOf is the inverse; -1 for a rank that is no member.
	RankOf func(peer int) int
	// Explain, if it isn't nil, gives the others' report of a failure time to come.
	Explain func(err error)
	// Lost breaks the communicator because a peer is lost that op needs, and returns its error.
	Lost func(op *backend.Op, err *fabric.PeerError) error

	free sync.Pool // *transfer
}

// transfer is a posted send or receive.
type transfer struct {
	msg    fabric.Msg
	waiter *fabric.Waiter
}

// Post posts a Send or Recv.
func (x *Transfers) Post(op *backend.Op) error {
	if x.Life.Raised() {
		return x.Life.Err(x.Life.Of(op))
	}
	t, _ := x.free.Get().(*transfer)
	if t == nil {
		t = &transfer{waiter: x.Life.Waiter()}
	}
	op.State = t
	m := &t.msg
	t.waiter.Begin(op.Ctx, op.Timeout)
	m.Reset(t.waiter)
	m.Key = fabric.Key{Comm: x.Comm, Class: fabric.PointToPoint, Tag: uint64(op.Tag)}
	m.Peer = x.AnySource()
	if op.Peer != backend.AnySource {
		m.Peer = x.Members[op.Peer]
	}
	data := op.In
	if op.Kind == backend.Recv {
		data = op.Out
	}
	m.Buf, m.Len = data.Pointer(), data.NBytes()
	m.Desc = fabric.Desc{byte(op.Kind), byte(data.DType())}
	binary.LittleEndian.PutUint64(m.Desc[8:], uint64(data.NumEl()))
	if op.Kind == backend.Send {
		x.Link.Send(m)
	} else {
		x.Link.Recv(m)
	}
	return nil
}

// AnySource is the link's name for all members of the communicator. For a communicator of one member that's the
// member itself: with the link's any source, the wait would end when all other ranks of the link are gone, which are
// no members.
func (x *Transfers) AnySource() int {
	if len(x.Members) == 1 {
		return x.Members[0]
	}
	return fabric.AnySource
}

// Complete completes a posted Send or Recv.
func (x *Transfers) Complete(op *backend.Op) error {
	t := op.State.(*transfer)
	op.State = nil
	err := x.Link.Wait(&t.msg, t.waiter)
	if err != nil {
		if !t.msg.Done() {
			x.Link.Cancel(&t.msg)
		}
		if t.msg.Err == nil {
			err = nil // it completed before it could be withdrawn
		}
	}
	op.From = backend.AnySource
	if err == nil {
		op.From = x.RankOf(t.msg.From)
	}
	err = x.failure(op, t, err)
	t.msg.Buf = nil
	x.free.Put(t)
	return err
}

// failure makes a typed error of a failed transfer. Only a lost peer or an
// abort breaks the communicator, or a context that panics: other ranks aren't concerned by the rest.
func (x *Transfers) failure(op *backend.Op, t *transfer, err error) error {
	m := &t.msg
	if err == nil {
		if op.Kind == backend.Recv && (m.N != m.Len || m.Sent[1] != m.Desc[1]) {
			return x.unequal(op, m, m.N, m.Len)
		}
		return nil
	}
	at := x.Life.Of(op)
	if p, ok := errors.AsType[*fabric.PanicError](err); ok {
		return x.Life.Panicked(at, p)
	}
	var lost *fabric.PeerError
	var long *fabric.TruncatedError
	if x.Explain != nil {
		x.Explain(err)
	}
	switch {
	case errors.As(err, &long):
		return x.unequal(op, m, long.Sent, long.Capacity)
	case x.Life.Raised():
		return x.Life.Err(at)
	case errors.As(err, &lost):
		return x.Lost(op, lost)
	case errors.Is(err, fabric.ErrCanceled) && op.Ctx.Err() == nil:
		return &backend.AbortedError{Where: at, By: x.RankOf(m.From), Reason: Withdrew}
	}
	return x.Life.WaitError(at, t.waiter, op.Peer, err)
}

// Withdrew is what a rank did whose message ends in its middle.
const Withdrew = "it withdrew the message on its way"

// unequal states what was sent and what was to be received. A fabric with a foreign wire knows only the bytes of the
// other side.
func (x *Transfers) unequal(op *backend.Op, m *fabric.Msg, sent, room int) error {
	side := func(d fabric.Desc) string {
		return fmt.Sprintf("%v(%v[%d])", backend.Kind(d[0]), dtype.DType(d[1]), binary.LittleEndian.Uint64(d[8:]))
	}
	at, peer := x.Life.Of(op), x.RankOf(m.From)
	if op.Kind == backend.Send {
		return &backend.MismatchError{Where: at, RankA: at.Reporter, RankB: peer, OpA: side(m.Desc),
			OpB: fmt.Sprintf("%v(%d bytes)", backend.Recv, room)}
	}
	theirs := side(m.Sent)
	if backend.Kind(m.Sent[0]) != backend.Send {
		theirs = fmt.Sprintf("%v(%d bytes)", backend.Send, sent)
	}
	return &backend.MismatchError{Where: at, RankA: peer, RankB: at.Reporter, OpA: theirs, OpB: side(m.Desc)}
}
