package shm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
)

// Fabric is one rank's end of the shared memory of its host. It implements
// [fabric.Fabric], [fabric.Sharer] and [fabric.Placer].
type Fabric struct {
	rank, size int
	local      int   // index among locals
	locals     []int // ranks of this host, ascending
	opts       options
	policy     fabric.Policy
	shape      shape
	timeout    time.Duration

	inbox *hostmem.Segment
	page  *inboxPage
	peers []*peer // by rank; nil for this rank and for ranks elsewhere
	near  []*peer // those that exist

	match *fabric.Matcher

	engine
	envelope envelope // the one being received; engine lock
	spare    *arrival
	across   across // engine lock

	arrivals arrivalPool
	own      *fabric.Local // messages to oneself
	mail     mailbox
	offers   offers

	closed  atomic.Bool
	closing sync.Once
	stop    chan struct{}
	workers sync.WaitGroup
	unhook  func() // of hostmem
}

var (
	_ fabric.Fabric = (*Fabric)(nil)
	_ fabric.Sharer = (*Fabric)(nil)
	_ fabric.Placer = (*Fabric)(nil)
)

// Name implements fabric.Fabric.
func (f *Fabric) Name() string { return Name }

// Rank implements fabric.Fabric.
func (f *Fabric) Rank() int { return f.rank }

// Size implements fabric.Fabric.
func (f *Fabric) Size() int { return f.size }

// Locals returns the ranks that the fabric reaches, ascending, this one included.
func (f *Fabric) Locals() []int { return slices.Clone(f.locals) }

// Path implements fabric.Fabric.
func (f *Fabric) Path(peer int) string {
	if peer == f.rank {
		return "self"
	}
	return Name
}

// Hosts implements fabric.Fabric: there's only one.
func (f *Fabric) Hosts() []int { return make([]int, f.size) }

// Place implements fabric.Placer.
func (f *Fabric) Place(p unsafe.Pointer, n int) fabric.Place {
	if !f.opts.mapping {
		return fabric.Place{}
	}
	s, offset, ok := hostmem.Find(p, n)
	if !ok {
		return fabric.Place{}
	}
	return fabric.Place{Segment: s.ID(), Offset: uint64(offset)}
}

// Handle implements fabric.Fabric.
func (f *Fabric) Handle(h fabric.Handler) { f.match.Handle(h) }

// Announce implements fabric.Fabric.
func (f *Fabric) Announce(comm uint32, tag uint64, desc *fabric.Desc) {
	f.match.Announce(comm, tag, desc)
}

// Announced implements fabric.Fabric.
func (f *Fabric) Announced(comm uint32, tag uint64) (fabric.Desc, bool) {
	return f.match.Announced(comm, tag)
}

// Forget implements fabric.Fabric.
func (f *Fabric) Forget(comm uint32) { f.match.Forget(comm) }

func (f *Fabric) peer(rank int) (*peer, error) {
	if rank < 0 || rank >= f.size || f.peers[rank] == nil {
		return nil, fmt.Errorf("shm: rank %d isn't on this host", rank)
	}
	return f.peers[rank], nil
}

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	if m.Peer == f.rank {
		f.sendSelf(m)
		return
	}
	p, err := f.peer(m.Peer)
	if err != nil {
		m.Complete(0, m.Peer, err)
		return
	}
	p.send(m)
}

// Recv implements fabric.Fabric.
func (f *Fabric) Recv(m *fabric.Msg) {
	if m.Peer != fabric.AnySource && m.Peer != f.rank {
		if _, err := f.peer(m.Peer); err != nil {
			m.Complete(0, m.Peer, err)
			return
		}
	}
	f.match.Post(m)
}

// sendSelf posts a message to this rank itself.
func (f *Fabric) sendSelf(m *fabric.Msg) {
	if f.closed.Load() {
		m.Complete(0, m.Peer, fabric.ErrClosed)
		return
	}
	f.own.Send(f.match, m)
	if f.closed.Load() { // Close may have looked before the message was there
		f.own.CancelAll(f.match, fabric.ErrClosed)
	}
}
