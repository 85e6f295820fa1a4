package shm

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/kern"
)

// pullBytes is how much of a message is copied before progress looks around. It's below 1 MiB,
// where the runtime's copy begins to bypass the caches. Bypassing was measured to be twice as slow
// up to streamBytes, and half as fast again above (EPYC, Zen 4, 32 MiB of L3).
const (
	pullBytes   = 512 << 10
	streamBytes = 32 << 20
)

// A pull is a receive that gets its payload out of its sender's memory. It copies from a mapping of
// the sender's segment, or reads across processes. If neither is possible, the sender puts the
// payload into the ring in pieces.
type pull struct {
	p     *peer
	m     *fabric.Msg // nil if no receive wants the message, whose rest is dropped then
	id    uint64      // the sender's
	addr  uint64
	place fabric.Place
	total int
	done  int

	taken  bool           // by this receiver
	mapped unsafe.Pointer // where to copy from
	staged uint64         // ID for pieces; 0 if it gets none
	kept   *fabric.Msg    // stands in for a receive that was withdrawn between pieces; see withdrawn.go
}

// pulls are the receives under way. The progress lock guards active; any goroutine may call add.
type pulls struct {
	count  atomic.Int32 // of those that pull has to look at
	active []*pull
	mu     sync.Mutex
	fresh  []*pull
	free   transport.Spares[pull]
	closed bool
}

func (s *pulls) busy() bool { return s.count.Load() != 0 }

// add starts a pull for a matched receive, or gives up a kept message if m is nil.
func (s *pulls) add(a *arrival, m *fabric.Msg) {
	f := a.p.f
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		if m != nil {
			m.Complete(0, a.From, fabric.ErrClosed)
		}
		return
	}
	x := s.free.Get()
	if x == nil {
		x = &pull{}
	}
	*x = pull{p: a.p, m: m, id: a.id, addr: a.addr, place: a.place, total: a.Len, staged: a.staged, kept: a.standIn}
	s.fresh = append(s.fresh, x)
	s.count.Add(1)
	s.mu.Unlock()
	f.kick()
}

// gather moves what was added to the list that progress has.
func (s *pulls) gather() {
	s.mu.Lock()
	s.active = append(s.active, s.fresh...)
	clear(s.fresh)
	s.fresh = s.fresh[:0]
	s.mu.Unlock()
}

// end forgets a pull.
func (s *pulls) end(x *pull) {
	s.count.Add(-1)
	s.recycle(x)
}

func (s *pulls) recycle(x *pull) {
	s.mu.Lock()
	*x = pull{}
	s.free.Put(x)
	s.mu.Unlock()
}

// pull goes one step on with every pull. The progress lock is held.
func (f *Fabric) pull() (progress bool) {
	s := &f.pulls
	s.gather()
	kept := s.active[:0]
	for _, x := range s.active {
		moved, over := f.advance(x)
		progress = progress || moved
		if !over {
			kept = append(kept, x)
		}
	}
	clear(s.active[len(kept):])
	s.active = kept
	return progress
}

// advance copies the next bytes, or finds out how to. It reports over if the
// pull no longer needs attention.
func (f *Fabric) advance(x *pull) (moved, over bool) {
	p := x.p
	if x.kept != nil {
		f.takeOver(x)
		return true, true
	}
	if err := p.failure(); err != nil {
		f.finish(x, err)
		return true, true
	}
	if !x.taken {
		return f.begin(x)
	}
	n := min(x.total-x.done, pullBytes)
	dst := unsafe.Add(x.m.Buf, x.done)
	if x.mapped != nil && x.total >= streamBytes {
		kern.CopyNT(dst, unsafe.Add(x.mapped, x.done), n)
	} else if x.mapped != nil {
		kern.Copy(dst, unsafe.Add(x.mapped, x.done), n)
	} else if err := f.across.read(p.pid, dst, x.addr+uint64(x.done), n); err != nil {
		// The permission may have gone since it was probed; then the sender must help.
		p.canRead = false
		p.theirClaims[uint32(x.id)].word.Store(claimWord(x.id, claimOpen))
		x.taken, x.done = false, 0
		return true, false
	}
	if x.done += n; x.done < x.total {
		return true, false
	}
	f.finish(x, nil)
	return true, true
}

// begin chooses how a pull gets its bytes.
func (f *Fabric) begin(x *pull) (moved, over bool) {
	p, claimable := x.p, uint32(x.id) < claimCount
	if claimable && x.place.Mappable() && f.opts.maps() {
		base, size, state := p.maps.find(x.place.Segment)
		switch state {
		case segmentAsked:
			return false, false
		case segmentUnknown:
			p.maps.ask(p, x.place.Segment)
			return true, false
		case segmentMapped:
			if x.place.Offset > size || uint64(x.total) > size-x.place.Offset {
				err := corrupt("a message of %d bytes at %d of a segment of %d", x.total, x.place.Offset, size)
				p.failLink(err)
				f.finish(x, &fabric.PeerError{Peer: p.rank, Err: err})
				return true, true
			}
			x.mapped = unsafe.Add(base, x.place.Offset)
			return f.claim(x)
		}
	}
	if claimable && p.canRead {
		x.mapped = nil
		return f.claim(x)
	}
	x.staged = p.staged.put(x)
	p.tell(kindPull, x.id, x.staged)
	f.pulls.count.Add(-1) // the pieces drive it from here on
	return true, true
}

// claim keeps the sender from withdrawing the message.
func (f *Fabric) claim(x *pull) (moved, over bool) {
	if !x.p.theirClaims[uint32(x.id)].word.CompareAndSwap(claimWord(x.id, claimOpen), claimWord(x.id, claimTaken)) {
		f.repost(x)
		f.pulls.end(x)
		return true, true
	}
	x.taken = true
	return true, false
}

// repost puts a receive back whose message was withdrawn.
func (f *Fabric) repost(x *pull) {
	if m := x.m; m != nil {
		f.Match.Post(m)
	}
}

// finish completes a pull and tells the sender.
func (f *Fabric) finish(x *pull, err error) {
	x.giveBack()
	if m := x.m; m != nil {
		n := x.done
		if err != nil {
			n = 0
		}
		m.Complete(n, x.p.rank, err)
	}
	f.pulls.end(x)
}

// giveBack gives a taken message back to the sender.
func (x *pull) giveBack() {
	if x.taken {
		x.p.theirClaims[uint32(x.id)].word.Store(claimWord(x.id, claimDone))
		x.p.theirAcks.Add(1)
		x.p.ring()
		x.taken = false
	}
}

// piece takes the next bytes of a staged message.
func (f *Fabric) piece(p *peer, v *envelope) error {
	at := p.staged.get(v.id)
	if at == nil {
		return corrupt("a piece for no message")
	}
	x := *at
	if v.n == 0 || v.n > x.total-x.done {
		return corrupt("a piece of %d bytes where %d are left", v.n, x.total-x.done)
	}
	if x.m != nil {
		kern.Copy(unsafe.Add(x.m.Buf, x.done), v.payload, v.n)
	}
	if x.done += v.n; x.done == x.total {
		p.staged.drop(v.id)
		if x.m != nil {
			x.m.Complete(x.total, p.rank, nil)
		}
		f.pulls.recycle(x)
	}
	return nil
}

// withdrawn handles the sender's note that a message which this rank pulls was withdrawn.
func (f *Fabric) withdrawn(p *peer, id uint64) {
	at := p.staged.get(id)
	if at == nil {
		return
	}
	x := *at
	p.staged.drop(id)
	if x.kept != nil {
		x.m.Complete(0, p.rank, fabric.ErrCanceled)
	} else {
		f.repost(x)
	}
	f.pulls.recycle(x)
}

// failPulls fails all pulls from a peer that is lost. The progress lock is held.
func (f *Fabric) failPulls(p *peer, err error) {
	p.staged.all(func(id uint64, at **pull) {
		x := *at
		p.staged.drop(id)
		if x.m != nil {
			x.m.Complete(0, p.rank, err)
		}
		f.pulls.recycle(x)
	})
}
