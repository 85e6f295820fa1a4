package shm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/hostmem"
)

// segments is what this process has mapped of one peer. Looking up takes no lock.
type segments struct {
	list atomic.Pointer[[]segment] // ascending by ID; replaced as a whole

	mu      sync.Mutex
	asked   map[uint64]*segmentRequest
	absent  map[uint64]bool // the peer couldn't give them away
	retired []*hostmem.Mapping
	closed  error
}

type segment struct {
	id   uint64
	base unsafe.Pointer
	size uint64
	m    *hostmem.Mapping
}

// segmentRequest is a request for a segment; done is closed when err is valid.
type segmentRequest struct {
	done chan struct{}
	err  error
}

type segmentState int

const (
	segmentUnknown segmentState = iota
	segmentAsked
	segmentMapped
	segmentAbsent
)

// lookup finds a mapped segment.
func (s *segments) lookup(id uint64) *segment {
	p := s.list.Load()
	if p == nil {
		return nil
	}
	list := *p
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); list[mid].id < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(list) && list[lo].id == id {
		return &list[lo]
	}
	return nil
}

// find tells what is known of a segment.
func (s *segments) find(id uint64) (unsafe.Pointer, uint64, segmentState) {
	if g := s.lookup(id); g != nil {
		return g.base, g.size, segmentMapped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.asked[id] != nil:
		return nil, 0, segmentAsked
	case s.absent[id]:
		return nil, 0, segmentAbsent
	case s.lookup(id) != nil: // arrived just now
		return nil, 0, segmentAsked
	}
	return nil, 0, segmentUnknown
}

// ask requests a segment from its owner, once.
func (s *segments) ask(p *peer, id uint64) *segmentRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.asked[id]; q != nil {
		return q
	}
	q := &segmentRequest{done: make(chan struct{})}
	if s.lookup(id) != nil {
		close(q.done)
		return q
	}
	q.err = s.closed
	if q.err == nil {
		q.err = p.link.send(fields{Kind: frameWant, ID: id}.encode(nil), -1)
	}
	if q.err != nil {
		close(q.done)
		return q
	}
	if s.asked == nil {
		s.asked, s.absent = map[uint64]*segmentRequest{}, map[uint64]bool{}
	}
	s.asked[id] = q
	return q
}

// answer maps the segment that the owner sent, or notes why not. It closes nothing of the caller's.
func (s *segments) answer(id uint64, fd int, size int64, color int, err error) {
	var m *hostmem.Mapping
	if err == nil {
		m, err = hostmem.Map(fd, size, color)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.asked[id]
	if q == nil || s.closed != nil {
		if m != nil {
			m.Unmap()
		}
		return
	}
	delete(s.asked, id)
	if err != nil {
		s.absent[id] = true
	} else {
		s.replace(func(list []segment) []segment {
			i, _ := slices.BinarySearchFunc(list, id, func(g segment, id uint64) int {
				if g.id < id {
					return -1
				}
				return 1
			})
			return slices.Insert(list, i, segment{id, m.Base(), uint64(m.Size()), m})
		})
	}
	q.err = err
	close(q.done)
}

func (s *segments) replace(edit func([]segment) []segment) {
	var list []segment
	if p := s.list.Load(); p != nil {
		list = slices.Clone(*p)
	}
	list = edit(list)
	s.list.Store(&list)
}

// maxRetired is how many closed segments keep their addresses.
const maxRetired = 256

// retire gives back the memory of a segment that its owner has closed. A straggler,
// such as the rank that is last to learn of an abort, may still be reading it, so
// its addresses stay readable until many others have gone the same way.
func (s *segments) retire(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.absent, id)
	g := s.lookup(id)
	if g == nil {
		return
	}
	m := g.m
	s.replace(func(list []segment) []segment {
		return slices.DeleteFunc(list, func(g segment) bool { return g.id == id })
	})
	size := (uintptr(m.Size()) + pageBytes - 1) &^ (pageBytes - 1)
	// If it fails, the memory merely stays until the retired mapping goes.
	unix.MmapPtr(-1, 0, m.Base(), size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	s.retired = append(s.retired, m)
	if len(s.retired) > maxRetired {
		s.retired[0].Unmap()
		s.retired = slices.Delete(s.retired, 0, 1)
	}
}

// fail ends all requests: the owner won't answer any more.
func (s *segments) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return
	}
	s.closed = err
	for _, q := range s.asked {
		q.err = err
		close(q.done)
	}
	s.asked = nil
}

// unmap gives everything back.
func (s *segments) unmap() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if p := s.list.Load(); p != nil {
		for _, g := range *p {
			errs = append(errs, g.m.Unmap())
		}
	}
	for _, m := range s.retired {
		errs = append(errs, m.Unmap())
	}
	s.list.Store(nil)
	s.retired = nil
	return errors.Join(errs...)
}

// resolve returns the address in this process of n bytes at a place of the peer.
func (p *peer) resolve(w *fabric.Waiter, at fabric.Place, n int) (unsafe.Pointer, error) {
	g := p.maps.lookup(at.Segment)
	if g == nil {
		var err error
		if g, err = p.fetchSegment(w, at.Segment); err != nil {
			return nil, fmt.Errorf("shm: map memory of rank %d: %w", p.rank, err)
		}
	}
	return within(g.base, g.size, at, n)
}

// within returns the address of n bytes at a place in the segment at base.
func within(base unsafe.Pointer, size uint64, at fabric.Place, n int) (unsafe.Pointer, error) {
	if n < 0 || at.Offset > size || uint64(n) > size-at.Offset {
		return nil, fmt.Errorf("shm: %d bytes at %d of a segment of %d bytes", n, at.Offset, size)
	}
	return unsafe.Add(base, at.Offset), nil
}

// fetchSegment asks the owner of a segment for it. Its link answers even while the owner computes, but not when it was
// stopped.
func (p *peer) fetchSegment(w *fabric.Waiter, id uint64) (*segment, error) {
	q := p.maps.ask(p, id)
	if err := w.Await(q.done); err != nil {
		return nil, err
	}
	if q.err != nil {
		return nil, q.err
	}
	if g := p.maps.lookup(id); g != nil {
		return g, nil
	}
	return nil, errors.New("the segment has been closed")
}

// shared is which of this process's segments a peer has asked for, so that it is
// told when they are closed.
type shared struct {
	mu  sync.Mutex
	ids map[uint64]bool
}

// give answers a peer's request for a segment of this process.
func (p *peer) give(id uint64) {
	p.shared.mu.Lock()
	defer p.shared.mu.Unlock() // so that the news of its end can't overtake it
	if !p.f.opts.maps() {
		p.link.send(fields{Kind: frameNone, ID: id}.encode(nil), -1)
		return
	}
	err := hostmem.Share(id, func(fd, size, color int) error {
		return p.link.send(fields{Kind: frameHave, ID: id, Size: int64(size), Color: int32(color)}.encode(nil), fd)
	})
	if fabric.Exhausted(err) {
		p.link.send(fields{Kind: frameNone, ID: id}.encode(text(err.Error())), -1)
		return
	}
	if err != nil {
		p.link.send(fields{Kind: frameNone, ID: id}.encode(nil), -1)
		return
	}
	if p.shared.ids == nil {
		p.shared.ids = map[uint64]bool{}
	}
	p.shared.ids[id] = true
}

// closedSegment tells the peer that a segment of this process is no more.
func (p *peer) closedSegment(id uint64) {
	p.shared.mu.Lock()
	defer p.shared.mu.Unlock()
	if p.shared.ids[id] {
		delete(p.shared.ids, id)
		p.link.send(fields{Kind: frameEnded, ID: id}.encode(nil), -1)
	}
}
