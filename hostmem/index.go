package hostmem

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// segmentIndex finds the segment of an address. Readers take no lock: they search an immutable sorted snapshot, which
// writers replace.
type segmentIndex struct {
	mu   sync.Mutex
	list atomic.Pointer[[]*Segment] // ascending by base, not overlapping
}

var index segmentIndex

func (x *segmentIndex) snapshot() []*Segment {
	if p := x.list.Load(); p != nil {
		return *p
	}
	return nil
}

// search returns the position of the first segment that begins above p.
func search(list []*Segment, p uintptr) int {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); uintptr(list[mid].base) <= p {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (x *segmentIndex) insert(s *Segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.snapshot()
	list := slices.Insert(slices.Clone(old), search(old, uintptr(s.base)), s)
	x.list.Store(&list)
}

func (x *segmentIndex) remove(s *Segment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(x.snapshot()), func(t *Segment) bool { return t == s })
	x.list.Store(&list)
}

// Find reports whether the n bytes at p lie within one of this process's own segments, and where. It takes no lock and
// does not allocate. Memory mapped from peers is not found.
func Find(p unsafe.Pointer, n int) (s *Segment, offset int, ok bool) {
	list := index.snapshot()
	i := search(list, uintptr(p)) - 1
	if i < 0 || n < 0 {
		return nil, 0, false
	}
	s = list[i]
	d := uintptr(p) - uintptr(s.base)
	if d > uintptr(s.size) || uintptr(n) > uintptr(s.size)-d || d == uintptr(s.size) {
		return nil, 0, false
	}
	return s, int(d), true
}
