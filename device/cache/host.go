package cache

import (
	"errors"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/config"
)

// HostDriver is what a [Host] needs: pinned memory instead of device memory, and the events of all devices' streams.
type HostDriver interface {
	Alloc(size int64) (addr uintptr, err error)

	// Free returns memory of Alloc. Work that was enqueued before may still use it: the driver waits, or keeps it.
	Free(addr uintptr) error

	// Record is as in [Driver], but may refuse a stream, one that is gone or being captured for example: memory that it
	// has used isn't kept then, but goes back to the driver.
	Record(s Stream) (Event, error)
	Query(e Event) (bool, error)
	Wait(e Event) error
	Release(e Event)
}

// Host caches pinned host memory. Sizes are rounded up to powers of two, and a block is given out again, whole, for any
// request of its size class, after events on all streams that it was recorded for.
type Host struct {
	driver HostDriver
	opts   config.Allocator

	mu      sync.Mutex
	used    []*hostBlock     // by address
	free    [64][]*hostBlock // by size class: the exponent of the size
	waiting []*hostBlock     // freed, with events
	stats   HostStats
}

type hostBlock struct {
	addr   uintptr
	size   int64
	uses   []Stream
	events []Event
}

// has says whether an address lies in the block.
func (b *hostBlock) has(addr uintptr) bool { return addr-b.addr < uintptr(b.size) }

// NewHost returns an empty cache over a driver.
func NewHost(d HostDriver, opts config.Allocator) (*Host, error) {
	if d == nil {
		return nil, invalid("no driver")
	}
	if opts == (config.Allocator{}) {
		opts = config.DefaultAllocator()
	}
	return &Host{driver: d, opts: opts}, nil
}

// Malloc returns at least n bytes of pinned memory; for n of 0 it returns 0.
func (h *Host) Malloc(n int64) (uintptr, error) {
	if n < 0 || n > maxRequest {
		return 0, invalid("Malloc of %d bytes of host memory", n)
	}
	if n == 0 {
		return 0, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.collect(false); err != nil {
		return 0, err
	}
	class := bits.Len64(uint64(n - 1))
	size := int64(1) << class
	if n > h.opts.PinnedMaxRound {
		size = n
	}
	// A block that wasn't rounded is at least as large as the power of two below its class.
	for i, b := range h.free[class] {
		if b.size >= n {
			h.free[class] = slices.Delete(h.free[class], i, i+1)
			return h.giveOut(b), nil
		}
	}
	began := time.Now()
	addr, err := h.driver.Alloc(size)
	if isOutOfMemory(err) {
		if err := h.emptyLocked(); err != nil {
			return 0, err
		}
		began = time.Now()
		addr, err = h.driver.Alloc(size)
	}
	if err != nil {
		return 0, err
	}
	h.stats.AllocTime.add(time.Since(began))
	h.stats.Allocations.change(1)
	h.stats.AllocatedBytes.change(size)
	return h.giveOut(&hostBlock{addr: addr, size: size}), nil
}

func (h *Host) giveOut(b *hostBlock) uintptr {
	i, _ := h.at(b.addr)
	h.used = slices.Insert(h.used, i, b)
	h.stats.ActiveRequests.change(1)
	h.stats.ActiveBytes.change(b.size)
	return b.addr
}

// at returns the place of the first allocation that doesn't end before an address, and whether the address lies in it.
func (h *Host) at(addr uintptr) (int, bool) {
	i := sort.Search(len(h.used), func(i int) bool { return h.used[i].addr+uintptr(h.used[i].size) > addr })
	return i, i < len(h.used) && h.used[i].has(addr)
}

// RecordStream says that work on a stream, of any device, uses the allocation that an address lies in: it's not given
// out again before that is done. It reports whether there is such an allocation.
func (h *Host) RecordStream(addr uintptr, s Stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.at(addr)
	if ok && !slices.Contains(h.used[i].uses, s) {
		h.used[i].uses = append(h.used[i].uses, s)
	}
	return ok
}

// Free gives back what Malloc returned; 0 is nothing.
func (h *Host) Free(addr uintptr) error {
	if addr == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.at(addr)
	if !ok || h.used[i].addr != addr {
		return h.wrongPointer(addr)
	}
	b := h.used[i]
	h.used = slices.Delete(h.used, i, i+1)
	for _, s := range b.uses {
		e, err := h.driver.Record(s)
		if err != nil {
			for _, e := range b.events {
				h.driver.Release(e)
			}
			h.idle(b)
			return h.giveBack(b)
		}
		b.events = append(b.events, e)
	}
	b.uses = b.uses[:0]
	if len(b.events) > 0 {
		h.waiting = append(h.waiting, b)
		return nil
	}
	return h.put(b)
}

// put makes a block free, or gives it back if it's too large to be kept.
func (h *Host) put(b *hostBlock) error {
	h.idle(b)
	if b.size > h.opts.PinnedMaxCached || h.opts.NoCaching {
		return h.giveBack(b)
	}
	class := bits.Len64(uint64(b.size - 1))
	h.free[class] = append(h.free[class], b)
	return nil
}

// idle counts a block as unused.
func (h *Host) idle(b *hostBlock) {
	h.stats.ActiveRequests.change(-1)
	h.stats.ActiveBytes.change(-b.size)
}

func (h *Host) giveBack(b *hostBlock) error {
	began := time.Now()
	if err := h.driver.Free(b.addr); err != nil {
		return err
	}
	h.stats.FreeTime.add(time.Since(began))
	h.stats.Allocations.change(-1)
	h.stats.AllocatedBytes.change(-b.size)
	return nil
}

// collect frees the blocks whose events have happened, or waits for all.
func (h *Host) collect(wait bool) error {
	var errs []error
	h.waiting = slices.DeleteFunc(h.waiting, func(b *hostBlock) bool {
		for len(b.events) > 0 {
			e := b.events[len(b.events)-1]
			done, err := true, error(nil)
			if wait {
				err = h.driver.Wait(e)
			} else {
				done, err = h.driver.Query(e)
			}
			if err != nil || !done {
				errs = append(errs, err)
				return false
			}
			h.driver.Release(e)
			b.events = b.events[:len(b.events)-1]
		}
		errs = append(errs, h.put(b))
		return true
	})
	return errors.Join(errs...)
}

// EmptyCache waits for all events and gives all free memory back to the driver.
func (h *Host) EmptyCache() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.emptyLocked()
}

func (h *Host) emptyLocked() error {
	if err := h.collect(true); err != nil {
		return err
	}
	for class, list := range h.free {
		for len(list) > 0 {
			if err := h.giveBack(list[len(list)-1]); err != nil {
				return err
			}
			list = list[:len(list)-1]
			h.free[class] = list
		}
	}
	return nil
}

// Owns says whether an address lies in an allocation.
func (h *Host) Owns(addr uintptr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.at(addr)
	return ok
}

func (h *Host) wrongPointer(addr uintptr) error {
	e := &PointerError{Op: "Host.Free", Addr: addr, Kind: ErrForeignPointer}
	find := func(b *hostBlock, kind error) {
		if b.has(addr) {
			e.Base, e.Size, e.Kind = b.addr, b.size, kind
		}
	}
	if i, ok := h.at(addr); ok {
		find(h.used[i], ErrInteriorPointer)
	}
	for _, list := range append(slices.Clone(h.free[:]), h.waiting) {
		for _, b := range list {
			find(b, ErrDoubleFree)
		}
	}
	return e
}
