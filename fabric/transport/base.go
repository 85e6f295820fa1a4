package transport

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// Base is the part of a fabric that is the same in all of them. A fabric embeds it, and adds Send, Wait, Cancel,
// Control and Close.
type Base struct {
	Name  string   // of the fabric, for errors
	Match *Matcher // which another fabric of this rank may share
	Own   *Local   // messages to oneself

	rank, size int
	closed     atomic.Bool
	controls   controlQueue
}

// NewBase returns the base of a rank whose messages to itself are buffered up to so many bytes.
func NewBase(name string, rank, size int, m *Matcher, buffer int) Base {
	return Base{Name: name, Match: m, Own: NewLocal(rank, m, buffer), rank: rank, size: size}
}

// Rank implements fabric.Fabric.
func (b *Base) Rank() int { return b.rank }

// Size implements fabric.Fabric.
func (b *Base) Size() int { return b.size }

// Handle implements fabric.Messenger.
func (b *Base) Handle(h fabric.Handler) { b.Match.Handle(h) }

// Announce implements fabric.Announcer.
func (b *Base) Announce(comm uint32, tag uint64, desc *fabric.Desc) {
	b.Match.Announce(comm, tag, desc)
}

// Announced implements fabric.Announcer.
func (b *Base) Announced(comm uint32, tag uint64) (fabric.Desc, bool) {
	return b.Match.Announced(comm, tag)
}

// Forget implements fabric.Announcer.
func (b *Base) Forget(comm uint32) { b.Match.Forget(comm) }

// Recv implements fabric.Fabric.
func (b *Base) Recv(m *fabric.Msg) {
	m.PrivP = nil // marks a receive: a fabric sets it in a send
	if m.Peer != fabric.AnySource && !b.Has(m.Peer) {
		m.Complete(0, m.Peer, b.NoRank(m.Peer))
		return
	}
	b.Match.Post(m)
}

// Has reports whether the world has a rank.
func (b *Base) Has(rank int) bool { return rank >= 0 && rank < b.size }

// NoRank says that a peer is not in the world.
func (b *Base) NoRank(peer int) error {
	return fmt.Errorf("%s: rank %d is not in a world of %d", b.Name, peer, b.size)
}

// Shut notes that the fabric is closed, and reports whether it wasn't before.
func (b *Base) Shut() bool { return !b.closed.Swap(true) }

// Closed reports whether it is.
func (b *Base) Closed() bool { return b.closed.Load() }

// Drop completes what is posted to be received, and what this rank has sent to itself, with ErrClosed.
func (b *Base) Drop() {
	b.Own.CancelAll(b.Match, fabric.ErrClosed)
	b.Match.Close(fabric.ErrClosed)
}

// SendTo delivers a message to a rank of this process, which may be this one, by its Matcher.
func (b *Base) SendTo(to *Matcher, m *fabric.Msg) {
	if b.Closed() {
		m.Complete(0, m.Peer, fabric.ErrClosed)
		return
	}
	b.Own.Send(to, m)
	if b.Closed() { // Drop may have looked before the message was there
		b.Own.CancelAll(to, fabric.ErrClosed)
	}
}

// Addressed checks what every control payload must be like.
func (b *Base) Addressed(peer int, payload []byte) error {
	switch {
	case !b.Has(peer):
		return b.NoRank(peer)
	case len(payload) > fabric.MaxControl:
		return fmt.Errorf("%s: control payload of %d bytes; the limit is %d", b.Name, len(payload), fabric.MaxControl)
	case b.Closed():
		return fabric.ErrClosed
	}
	return nil
}

// Hand gives this rank's Handler a control payload of a rank of this process, itself perhaps, in order: on a goroutine
// that lives while there are any, for a handler may itself send some.
func (b *Base) Hand(from int, payload []byte) {
	x := &b.controls
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = append(x.list, control{from, slices.Clone(payload)})
	if !x.busy {
		x.busy = true
		go b.deliverControls()
	}
}

type controlQueue struct {
	mu   sync.Mutex
	list []control
	busy bool
}

func (b *Base) deliverControls() {
	x := &b.controls
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.list) > 0 {
		letters := x.list
		x.list = nil
		x.mu.Unlock()
		for _, l := range letters {
			if !b.Closed() {
				b.Match.Control(l.from, l.payload)
			}
		}
		x.mu.Lock()
	}
	x.busy = false
}

// yields is how often a wait gives way to other goroutines before it blocks: often enough for a peer that is at work,
// seldom enough for one that isn't.
const yields = 32

// Wait is fabric.Fabric's for what other goroutines of this process complete.
func Wait(m *fabric.Msg, w *fabric.Waiter) error {
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

// AwaitDone waits until a message is done that is being copied, or about to be completed: at most limit, unless that is
// 0. It reports whether it is. The message's own Waiter can't do it, for it has given up.
func AwaitDone(m *fabric.Msg, limit time.Duration) bool {
	var start time.Time
	for i := 0; !m.Done(); i++ {
		if i < 100 {
			runtime.Gosched()
			continue
		}
		if start.IsZero() {
			start = time.Now()
		} else if limit > 0 && time.Since(start) > limit {
			return false
		}
		time.Sleep(50 * time.Microsecond)
	}
	return true
}

// Hosts numbers hosts, of which each rank has named its own, in the order of their lowest ranks.
func Hosts(names []string) []int {
	numbers, seen := make([]int, len(names)), map[string]int{}
	for r, name := range names {
		n, ok := seen[name]
		if !ok {
			n = len(seen)
			seen[name] = n
		}
		numbers[r] = n
	}
	return numbers
}
