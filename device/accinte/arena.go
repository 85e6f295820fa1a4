package accinte

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/hostmem"
)

// arena is the memory of one device. It has a range of addresses much larger than the memory, in which allocations are
// placed; a segment that holds the memory; and an inaccessible mirror of the same size, which device pointers point
// into.
type arena struct {
	seg    *hostmem.Segment
	mirror unsafe.Pointer
	limit  int // bytes of memory

	mu   sync.Mutex
	used int    // bytes committed or promised
	free []hole // ascending, never adjacent
	next int    // where the search for a place begins
}

type hole struct{ at, size int }

// spread is how many times as many addresses there are as memory. An expandable segment of the caching allocator
// reserves a bit more than the memory for each stream and size class, so there must be plenty.
const spread = 64

// maxAddresses keeps the addresses of many ranks with several devices within what a process has.
const maxAddresses = 1 << 40

func newArena(memory int) (*arena, error) {
	size := max(min(memory*spread, maxAddresses), memory*2)
	seg, err := hostmem.AllocSparse(size)
	if err != nil {
		return nil, err
	}
	mirror, err := reserve(seg.Size())
	if err != nil {
		seg.Close()
		return nil, err
	}
	return &arena{seg: seg, mirror: mirror, limit: memory, free: []hole{{0, seg.Size()}}}, nil
}

// reserve takes addresses at which nothing can be touched.
func reserve(size int) (unsafe.Pointer, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of addresses: %w", size, err)
	}
	return p, nil
}

func (a *arena) close() error {
	return errors.Join(unix.MunmapPtr(a.mirror, uintptr(a.seg.Size())), a.seg.Close())
}

// contains reports whether an address is a device pointer of the arena.
func (a *arena) contains(p uintptr) bool {
	return p-uintptr(a.mirror) < uintptr(a.seg.Size())
}

// largeSize is from where on allocations are kept largeGap apart, so that large buffers one after the other don't agree
// in the address bits that processors confuse (see package hostmem). Smaller ones are a page apart.
const (
	largeSize = 1 << 20
	largeGap  = 2 << 20
)

// room returns what an allocation of n bytes takes of the addresses.
func room(n int) int {
	if n = roundUp(n, pageSize); n >= largeSize {
		return roundUp(n, largeGap) + largeGap
	}
	return n + pageSize
}

// place finds addresses for n bytes, from where the last search ended, so that freed ones are used again late.
func (a *arena) place(n int) (at int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	need := room(n)
	first := slices.IndexFunc(a.free, func(h hole) bool { return h.at+h.size > a.next })
	if len(a.free) == 0 {
		return 0, false
	}
	for i := range len(a.free) + 1 { // the first twice: what lies before next in it comes last
		k := (max(first, 0) + i) % len(a.free)
		h := a.free[k]
		at := h.at
		if i == 0 && first >= 0 {
			at = max(at, a.next)
		}
		if h.at+h.size-at < need {
			continue
		}
		rest := []hole{{h.at, at - h.at}, {at + need, h.at + h.size - at - need}}
		rest = slices.DeleteFunc(rest, func(h hole) bool { return h.size == 0 })
		a.free = slices.Replace(a.free, k, k+1, rest...)
		a.next = at + need
		return at, true
	}
	return 0, false
}

// unplace gives addresses of place back.
func (a *arena) unplace(at, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size := room(n)
	k, _ := slices.BinarySearchFunc(a.free, at, func(h hole, at int) int { return h.at - at })
	if k > 0 && a.free[k-1].at+a.free[k-1].size == at {
		k--
		a.free[k].size += size
	} else {
		a.free = slices.Insert(a.free, k, hole{at, size})
	}
	if k+1 < len(a.free) && a.free[k].at+a.free[k].size == a.free[k+1].at {
		a.free[k].size += a.free[k+1].size
		a.free = slices.Delete(a.free, k+1, k+2)
	}
}

// commit puts memory behind a range of whole pages. It reports whether the device has that much.
func (a *arena) commit(at, n int) (enough bool, err error) {
	a.mu.Lock()
	if n > a.limit-a.used {
		a.mu.Unlock()
		return false, nil
	}
	a.used += n
	a.mu.Unlock()
	if err := a.seg.Commit(at, n); err != nil {
		a.mu.Lock()
		a.used -= n
		a.mu.Unlock()
		return false, err
	}
	return true, nil
}

func (a *arena) decommit(at, n int) error {
	err := a.seg.Decommit(at, n)
	a.mu.Lock()
	a.used -= n
	a.mu.Unlock()
	return err
}

func (a *arena) available() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limit - a.used
}
