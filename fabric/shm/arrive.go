package shm

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/kern"
)

// receiveBatch bounds the entries taken from one peer before the others have their turn.
const receiveBatch = 32

// receive takes entries out of a peer's ring; stamp is the first one's. The progress lock is held.
func (f *Fabric) receive(p *peer, stamp uint64) {
	for range receiveBatch {
		if err := f.take(p, stamp); err != nil {
			p.broken = true
			p.failLink(err)
			return
		}
		p.in.next++
		var ok bool
		var err error
		if stamp, ok, err = p.in.peek(); !ok {
			if err != nil {
				p.broken = true
				p.failLink(err)
			}
			break
		}
	}
	if p.in.release() {
		p.ring()
	}
}

// take handles one entry.
func (f *Fabric) take(p *peer, stamp uint64) error {
	v := &f.envelope
	if err := p.in.entry().parse(stamp, p.in.area, v); err != nil {
		return err
	}
	switch v.kind {
	case kindWhole, kindReady:
		f.arrive(p, v)
	case kindPull:
		p.pulled(v.id, v.pull)
	case kindPiece:
		return f.piece(p, v)
	case kindGone:
		f.withdrawn(p, v.pull)
	case kindDrop:
		p.dropped(v.id)
	}
	return nil
}

// arrival is a message on its way to a receive. Two parties hold it: progress
// until the payload has left the ring, the Matcher until Fetch.
type arrival struct {
	transport.Arrival
	p     *peer
	whole bool
	id    uint64
	addr  uint64
	place fabric.Place

	// Of a message that was given back while its pieces came.
	staged  uint64
	standIn *fabric.Msg

	refs atomic.Int32
	mu   sync.Mutex
	data unsafe.Pointer // the payload, in the ring or in kept
	kept []byte
}

// arrive hands the news of a message to the Matcher.
func (f *Fabric) arrive(p *peer, v *envelope) {
	a := f.spare
	if a == nil {
		a = f.arrivals.get()
	}
	f.spare = nil
	a.From, a.Key, a.Desc, a.Len, a.Via = p.rank, v.key, v.desc, v.n, a
	a.p, a.whole = p, v.kind == kindWhole
	a.id, a.addr, a.place, a.data = v.id, v.addr, v.place, v.payload
	if !a.whole || v.n == 0 {
		a.refs.Store(1)
		f.Match.Arrive(&a.Arrival)
		return
	}
	a.refs.Store(2)
	f.Match.Arrive(&a.Arrival)
	if a.refs.Load() != 1 { // no receive is posted yet: the payload must leave the ring
		a.mu.Lock()
		a.kept = f.arrivals.buffers.Get(v.n)
		kern.Copy(unsafe.Pointer(&a.kept[0]), a.data, v.n)
		a.data = unsafe.Pointer(&a.kept[0])
		a.mu.Unlock()
		if a.refs.Add(-1) > 0 {
			return
		}
		f.arrivals.recycle(a)
	}
	a.refs.Store(0)
	f.spare = a
}

// Fetch implements transport.Fetcher.
func (a *arrival) Fetch(_ *transport.Arrival, m *fabric.Msg) {
	f, p, n := a.p.f, a.p, a.Len
	var err error
	if m != nil && n > m.Len {
		err = &fabric.TruncatedError{Peer: p.rank, Sent: n, Capacity: m.Len}
	}
	switch {
	case a.whole:
		if m != nil && err == nil && n > 0 {
			a.mu.Lock()
			kern.Copy(m.Buf, a.data, n)
			a.mu.Unlock()
		}
	case m == nil && f.Closed(): // the goodbye fails it at its sender
	case a.standIn != nil && err != nil:
		f.pulls.add(a, nil)
	case (m == nil || err != nil) && a.standIn == nil:
		p.refuse(a.id)
	default:
		f.pulls.add(a, m)
		m = nil
	}
	if a.refs.Add(-1) == 0 {
		f.arrivals.put(a)
	}
	switch {
	case m == nil:
	case err != nil:
		m.Complete(0, p.rank, err)
	default:
		m.Complete(n, p.rank, nil)
	}
}

// arrivalPool keeps arrivals and the buffers of unexpected messages for reuse.
type arrivalPool struct {
	mu      sync.Mutex
	free    transport.Spares[arrival]
	buffers transport.Buffers
}

func (s *arrivalPool) get() *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.free.Get(); a != nil {
		return a
	}
	return &arrival{}
}

func (s *arrivalPool) put(a *arrival) {
	s.recycle(a)
	s.mu.Lock()
	a.p, a.standIn = nil, nil
	s.free.Put(a)
	s.mu.Unlock()
}

// recycle takes an arrival's buffer back.
func (s *arrivalPool) recycle(a *arrival) {
	s.buffers.Put(a.kept)
	a.kept, a.data = nil, nil
}

// drain takes all that a peer has sent. The progress lock is held.
func (f *Fabric) drain(p *peer) {
	for !p.broken {
		stamp, ok, err := p.in.peek()
		if !ok || err != nil {
			return
		}
		f.receive(p, stamp)
	}
}
