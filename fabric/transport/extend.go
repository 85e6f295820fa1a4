package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
)

// ControlKey is what the control payloads of an extended fabric come under: no communicator has number 0.
var ControlKey = fabric.Key{Comm: 0, Class: fabric.Internal}

// Extend returns f if it's a Messenger, and else one around it whose control payloads are messages under ControlKey. If
// f isn't an Announcer either, a loss is found by the receives that wait for the peer, and announcements are only
// remembered. A message of another operation is then noticed when a receive matches it, and a message without a posted
// receive stays where it is.
func Extend(f fabric.Fabric) fabric.Messenger {
	if m, ok := f.(fabric.Messenger); ok {
		return m
	}
	x := &extended{Fabric: f, base: NewBase("control", f.Rank(), f.Size(), NewMatcher(f.Size()), 0),
		stop: fabric.NewAbort()}
	x.sender = fabric.NewWaiter(x.stop)
	x.drained.L = &x.mu
	x.announcer = &x.base
	if a, ok := f.(fabric.Announcer); ok {
		x.announcer, x.told = a, true
	}
	return x
}

// announcer is what a fabric.Announcer has besides a Fabric.
type announcer interface {
	Handle(h fabric.Handler)
	Announce(comm uint32, tag uint64, desc *fabric.Desc)
	Announced(comm uint32, tag uint64) (fabric.Desc, bool)
	Forget(comm uint32)
}

type extended struct {
	fabric.Fabric
	announcer
	told  bool          // the fabric is the announcer, and reports losses itself
	base  Base          // whose Matcher has the Handler, and the losses, but no messages
	stop  *fabric.Abort // ends what follows
	tasks sync.WaitGroup

	mu      sync.Mutex
	hearing bool
	sending []*fabric.Msg // control payloads that aren't done
	drained sync.Cond     // there are none
	sender  *fabric.Waiter
}

const (
	maxSending = 4096            // control payloads under way, to peers that don't take them
	wordGrace  = 2 * time.Second // for them to be on their way when this rank closes
)

// Handle implements fabric.Announcer.
func (x *extended) Handle(h fabric.Handler) {
	x.base.Handle(h)
	if x.told {
		x.announcer.Handle(h)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.hearing || x.base.Closed() {
		return
	}
	x.hearing = true
	for p := range x.Size() {
		if p != x.Rank() {
			x.tasks.Go(func() { x.hear(p) })
		}
	}
}

// hear receives the control payloads of a peer, until it's gone or this rank closes.
func (x *extended) hear(peer int) {
	w, buf := fabric.NewWaiter(x.stop), make([]byte, fabric.MaxControl)
	w.Policy = fabric.BlockPolicy
	m := &fabric.Msg{Peer: peer, Key: ControlKey, Buf: unsafe.Pointer(unsafe.SliceData(buf)), Len: len(buf)}
	for {
		m.Reset(w)
		w.Begin(nil, 0)
		x.Recv(m)
		if x.Wait(m, w); !m.Done() {
			x.Cancel(m)
		}
		lost, long := (*fabric.PeerError)(nil), (*fabric.TruncatedError)(nil)
		switch {
		case m.Err == nil:
			x.base.Match.Control(peer, slices.Clone(buf[:m.N]))
		case errors.As(m.Err, &long): // it's none
		case errors.As(m.Err, &lost) && (x.told || errors.Is(lost.Err, fabric.ErrLeft)):
			x.base.Match.Left(peer)
			return
		case errors.As(m.Err, &lost):
			x.base.Match.Lost(peer, lost.Err)
			return
		default:
			return
		}
	}
}

// Control implements fabric.Messenger.
func (x *extended) Control(peer int, payload []byte) error {
	if err := x.base.Addressed(peer, payload); err != nil {
		return err
	}
	if peer == x.Rank() {
		x.base.Hand(peer, payload)
		return nil
	}
	if err := x.base.Match.LostError(peer); err != nil {
		return err
	}
	own := slices.Clone(payload)
	m := &fabric.Msg{Peer: peer, Key: ControlKey, Buf: unsafe.Pointer(unsafe.SliceData(own)), Len: len(own)}
	m.Reset(x.sender)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.stop.Raised():
		return fabric.ErrClosed
	case len(x.sending) == maxSending:
		return fmt.Errorf("%d control payloads were not taken by their receivers", maxSending)
	}
	if x.Send(m); m.Done() {
		return m.Err
	}
	if x.sending = append(x.sending, m); len(x.sending) == 1 {
		x.tasks.Go(x.see)
	}
	return nil
}

// see waits for the control payloads that are under way.
func (x *extended) see() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.sending) > 0 {
		m := x.sending[0]
		x.mu.Unlock()
		x.sender.Begin(nil, 0)
		if x.Wait(m, x.sender); !m.Done() {
			x.Cancel(m)
		}
		x.mu.Lock()
		x.sending = slices.Delete(x.sending, 0, 1)
	}
	x.drained.Broadcast()
}

// Close implements fabric.Fabric.
func (x *extended) Close(ctx context.Context) error {
	if !x.base.Shut() {
		return x.Fabric.Close(ctx)
	}
	over, cancel := context.WithTimeout(ctx, wordGrace)
	late := context.AfterFunc(over, func() { x.stop.Raise(fabric.ErrClosed) })
	x.mu.Lock()
	for len(x.sending) > 0 {
		x.drained.Wait()
	}
	x.stop.Raise(fabric.ErrClosed) // from here on nothing is sent or received
	x.mu.Unlock()
	late()
	cancel()
	x.tasks.Wait()
	return x.Fabric.Close(ctx)
}
