package mem

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// Rank is one rank's fabric.
type Rank struct {
	world *world
	rank  int
	match *fabric.Matcher
	local *fabric.Local

	closed atomic.Bool
	mail   mailbox
}

// Name implements fabric.Fabric.
func (f *Rank) Name() string { return "mem" }

// Rank implements fabric.Fabric.
func (f *Rank) Rank() int { return f.rank }

// Size implements fabric.Fabric.
func (f *Rank) Size() int { return len(f.world.ranks) }

// Hosts implements fabric.Fabric.
func (f *Rank) Hosts() []int { return slices.Clone(f.world.hosts) }

// Path implements fabric.Fabric.
func (f *Rank) Path(peer int) string {
	if peer == f.rank {
		return "self"
	}
	return "mem"
}

// Handle implements fabric.Fabric.
func (f *Rank) Handle(h fabric.Handler) { f.match.Handle(h) }

// Announce implements fabric.Fabric.
func (f *Rank) Announce(comm uint32, tag uint64, desc *fabric.Desc) {
	f.match.Announce(comm, tag, desc)
}

// Announced implements fabric.Fabric.
func (f *Rank) Announced(comm uint32, tag uint64) (fabric.Desc, bool) {
	return f.match.Announced(comm, tag)
}

// Forget implements fabric.Fabric.
func (f *Rank) Forget(comm uint32) { f.match.Forget(comm) }

func (f *Rank) checkPeer(m *fabric.Msg, lowest int) bool {
	if m.Peer < lowest || m.Peer >= f.Size() {
		m.Complete(0, m.Peer, fmt.Errorf("mem: rank %d is not in a world of %d", m.Peer, f.Size()))
		return false
	}
	return true
}

// Send implements fabric.Fabric.
func (f *Rank) Send(m *fabric.Msg) {
	if !f.checkPeer(m, 0) {
		return
	}
	if f.closed.Load() {
		m.Complete(0, m.Peer, fabric.ErrClosed)
		return
	}
	m.PrivP = f // marks a send, for Cancel
	to := f.world.ranks[m.Peer].match
	f.local.Send(to, m)
	if f.closed.Load() { // Close may have looked before the message was there
		f.local.CancelAll(to, fabric.ErrClosed)
	}
}

// Recv implements fabric.Fabric.
func (f *Rank) Recv(m *fabric.Msg) {
	m.PrivP = nil
	if f.checkPeer(m, fabric.AnySource) {
		f.match.Post(m)
	}
}

// yields is how often a wait gives way to other goroutines before it blocks:
// often enough for a peer that is at work, seldom enough for one that isn't.
const yields = 32

// Wait implements fabric.Fabric.
func (f *Rank) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	for range yields {
		if m.Done() {
			return m.Err
		}
		runtime.Gosched()
	}
	if err := w.Block(m.Done); err != nil {
		return err
	}
	return m.Err
}

// Cancel implements fabric.Fabric.
func (f *Rank) Cancel(m *fabric.Msg) {
	if m.Done() {
		return
	}
	if m.PrivP != nil {
		f.local.Cancel(f.world.ranks[m.Peer].match, m, fabric.ErrCanceled)
	} else {
		f.match.Withdraw(m, fabric.ErrCanceled)
	}
	// Being copied, or about to be completed: by a goroutine that waits for nobody, so this ends.
	for i := 0; !m.Done(); i++ {
		if i < yields {
			runtime.Gosched()
		} else {
			time.Sleep(cancelPause)
		}
	}
}

// cancelPause is how long Cancel leaves a copy alone that takes longer than a few turns of the scheduler.
const cancelPause = 20 * time.Microsecond

// Control implements fabric.Fabric.
func (f *Rank) Control(peer int, payload []byte) error {
	switch {
	case peer < 0 || peer >= f.Size():
		return fmt.Errorf("mem: rank %d is not in a world of %d", peer, f.Size())
	case len(payload) > fabric.MaxControl:
		return fmt.Errorf("mem: control payload of %d bytes; the limit is %d", len(payload), fabric.MaxControl)
	case f.closed.Load():
		return fabric.ErrClosed
	}
	if err := f.match.LostError(peer); err != nil {
		return err
	}
	to := f.world.ranks[peer]
	to.mail.deliver(to, letter{from: f.rank, payload: slices.Clone(payload)})
	return nil
}

// Close implements fabric.Fabric.
func (f *Rank) Close(context.Context) error {
	f.end(func(m *fabric.Matcher) { m.Left(f.rank) })
	return nil
}

// Kill ends a rank the way a crash does: its peers lose it, with the cause.
func (f *Rank) Kill(cause error) {
	f.end(func(m *fabric.Matcher) { m.Lost(f.rank, cause) })
}

func (f *Rank) end(tell func(*fabric.Matcher)) {
	if f.closed.Swap(true) {
		return
	}
	for _, p := range f.world.ranks {
		f.local.CancelAll(p.match, fabric.ErrClosed)
		if p != f {
			tell(p.match)
		}
	}
	f.match.Close(fabric.ErrClosed)
}

// mailbox hands control payloads to a rank's handler in order, on a goroutine of
// its own while there are any: a handler may itself send some.
type mailbox struct {
	mu      sync.Mutex
	letters []letter
	busy    bool
}

type letter struct {
	from    int
	payload []byte
}

func (b *mailbox) deliver(to *Rank, l letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.letters = append(b.letters, l)
	if !b.busy {
		b.busy = true
		go b.drain(to)
	}
}

func (b *mailbox) drain(to *Rank) {
	for {
		b.mu.Lock()
		letters := b.letters
		b.letters = nil
		b.busy = len(letters) > 0
		b.mu.Unlock()
		if len(letters) == 0 {
			return
		}
		for _, l := range letters {
			if !to.closed.Load() {
				to.match.Control(l.from, l.payload)
			}
		}
	}
}
