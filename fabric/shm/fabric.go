package shm

import (
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/hostmem"
)

// Fabric is one rank's end of the shared memory of its host. It implements
// [fabric.Fabric], [fabric.Sharer] and [fabric.Placer].
type Fabric struct {
	transport.Base
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

	progress
	envelope envelope // the one being received; progress lock
	spare    *arrival
	across   across // progress lock

	arrivals arrivalPool
	offers   *offers

	closing sync.Once
	stop    chan struct{}
	workers sync.WaitGroup
	unhook  func() // of hostmem
}

var (
	_ fabric.Messenger = (*Fabric)(nil)
	_ fabric.Sharer    = (*Fabric)(nil)
	_ fabric.Placer    = (*Fabric)(nil)
)

// Locals returns the ranks that the fabric reaches, ascending, this one included.
func (f *Fabric) Locals() []int { return slices.Clone(f.locals) }

// Hosts implements fabric.Sharer: there's only one.
func (f *Fabric) Hosts() []int { return make([]int, f.size) }

// Place implements fabric.Placer.
func (f *Fabric) Place(p unsafe.Pointer, n int) fabric.Place {
	if !f.opts.maps() {
		return fabric.Place{}
	}
	s, offset, ok := hostmem.Find(p, n)
	if !ok {
		return fabric.Place{}
	}
	return fabric.Place{Segment: s.ID(), Offset: uint64(offset)}
}

func (f *Fabric) peer(rank int) (*peer, error) {
	if !f.Has(rank) || f.peers[rank] == nil {
		return nil, fmt.Errorf("shm: rank %d isn't on this host", rank)
	}
	return f.peers[rank], nil
}

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	if m.Peer == f.rank {
		f.SendTo(f.Match, m)
		return
	}
	p, err := f.peer(m.Peer)
	if err != nil {
		m.Complete(0, m.Peer, err)
		return
	}
	p.send(m)
}
