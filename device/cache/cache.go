package cache

import (
	"fmt"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/config"
)

// Options are a cache's settings.
type Options struct {
	config.Allocator

	// Device is the number by which errors and snapshots name the device.
	Device int

	// OnPressure is asked to free memory that is held elsewhere, when no cached block fits and before the driver is
	// asked. It says whether it freed any. It is called with no lock held; nil: there is nothing to free.
	OnPressure func() bool

	// OnOutOfMemory is called for each allocation that fails, with no lock held.
	OnOutOfMemory func(*OutOfMemoryError)
}

// Cache is the caching allocator of one device.
type Cache struct {
	driver   Driver
	reserver Reserver // nil if segments aren't expandable
	opts     Options

	mu           sync.Mutex
	small, large pool
	private      map[PoolID]*privatePool
	scopes       []scope // private pools that are allocated from now
	capturing    int     // how many of the scopes are graph captures
	streams      map[Stream]bool
	allocated    table
	segments     []*segment // by address
	spare        *block     // blocks to use again, linked by next
	key          block      // scratch of searches
	pending      []eventQueue
	outstanding  int      // events in pending
	deferred     []*block // freed while capturing with other streams' uses
	allowed      int64    // what the memory fraction allows; 0: everything
	reserved     int64    // what segments hold, and what is being asked of the driver
	stats        Stats
	history      history
}

// New returns an empty cache over a driver.
func New(d Driver, opts Options) (*Cache, error) {
	if d == nil {
		return nil, invalid("no driver")
	}
	if opts.Allocator == (config.Allocator{}) {
		opts.Allocator = config.DefaultAllocator()
	}
	c := &Cache{driver: d, opts: opts, private: map[PoolID]*privatePool{}, streams: map[Stream]bool{}}
	c.small.small = true
	c.small.unmapped.byAddress, c.large.unmapped.byAddress = true, true
	if opts.Expandable && !opts.NoCaching {
		r, ok := d.(Reserver)
		if !ok {
			return nil, invalid("expandable segments on a driver that can't reserve addresses")
		}
		c.reserver = r
	}
	if opts.Fraction != 1 {
		if err := c.SetFraction(opts.Fraction); err != nil {
			return nil, err
		}
	}
	if opts.MaxSplitSize != config.Unlimited {
		c.stats.MaxSplitSize = opts.MaxSplitSize
	} else {
		c.stats.MaxSplitSize = -1
	}
	return c, nil
}

// SetFraction limits the cache to a part of the device's memory, above 0 and at most 1. It keeps memory that it holds
// already.
func (c *Cache) SetFraction(f float64) error {
	if !(f >= 0 && f <= 1) {
		return invalid("a memory fraction of %v", f)
	}
	_, total, err := c.driver.Memory()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed = max(1, int64(f*float64(total)))
	if f == 1 {
		c.allowed = 0
	}
	return nil
}

// Malloc returns at least n bytes for use on a stream, at an address that is a multiple of 512. For n of 0 it returns
// 0. Without enough memory the error is an [*OutOfMemoryError].
func (c *Cache) Malloc(n int64, s Stream) (uintptr, error) { return c.take(PoolID{}, n, s) }

// MallocIn is Malloc from a private pool of [Cache.NewPool]; the zero PoolID names none.
func (c *Cache) MallocIn(id PoolID, n int64, s Stream) (uintptr, error) { return c.take(id, n, s) }

func (c *Cache) take(id PoolID, n int64, s Stream) (uintptr, error) {
	switch {
	case n < 0:
		return 0, invalid("Malloc of %d bytes", n)
	case n == 0:
		return 0, nil
	}
	c.mu.Lock()
	if !c.streams[s] {
		if err := c.meet(s); err != nil {
			c.mu.Unlock()
			return 0, err
		}
	}
	own := c.private[id]
	if own == nil && id != (PoolID{}) {
		c.mu.Unlock()
		return 0, fmt.Errorf("cache: MallocIn of pool %v: %w", id, ErrUnknownPool)
	}
	addr, oom, err := c.malloc(own, n, s)
	c.mu.Unlock()
	if oom != nil {
		if c.opts.OnOutOfMemory != nil {
			c.opts.OnOutOfMemory(oom)
		}
		return 0, oom
	}
	return addr, err
}

// malloc is from a private pool, if own isn't nil. It's called, and returns, with the lock held; it gives it up while
// others are asked for memory.
func (c *Cache) malloc(own *privatePool, n int64, s Stream) (uintptr, *OutOfMemoryError, error) {
	if n > maxRequest {
		return 0, c.outOfMemory(n, s, nil), nil
	}
	if c.capturing == 0 {
		if err := c.processEvents(); err != nil {
			return 0, nil, err
		}
	}
	size := c.roundSize(n)
	p := c.poolFor(own, size, s)
	b := c.findFree(p, size, s)
	if b == nil && c.opts.OnPressure != nil {
		c.mu.Unlock()
		freed := c.opts.OnPressure()
		c.mu.Lock()
		if freed {
			b = c.findFree(p, size, s)
		}
	}
	if b == nil {
		var err error
		if b, err = c.grow(p, size, s); b == nil {
			if err != nil && !isOutOfMemory(err) {
				return 0, nil, err
			}
			return 0, c.outOfMemory(n, s, err), nil
		}
	}
	borrowed := b.stream != s
	addr := c.giveOut(b, n, size)
	if borrowed {
		b = c.allocated.find(addr)
		b.uses = append(b.uses, s)
	}
	return addr, nil, nil
}

// meet asks the driver for a stream that isn't known yet.
func (c *Cache) meet(s Stream) error {
	if !c.driver.HasStream(s) {
		return &StreamError{Stream: s}
	}
	c.streams[s] = true
	return nil
}

// findFree takes the smallest free block that is large enough out of the pool's set.
func (c *Cache) findFree(p *pool, size int64, s Stream) *block {
	if c.opts.NoCaching {
		return nil
	}
	if c.collects() {
		p.clock++
	}
	c.key.stream, c.key.size, c.key.addr = s, size, 0
	b := p.free.lowerBound(&c.key)
	if b == nil || b.stream != s {
		return nil
	}
	if b.seg.expandable {
		// For the best fit the size of an expandable block is what it can grow to.
		for {
			n := p.free.next(b)
			if n == nil || n.stream != s || room(n) >= room(b) {
				break
			}
			b = n
		}
	}
	if !c.suits(b, size) {
		return nil
	}
	p.free.remove(b)
	return b
}

// suits reports whether a block that is large enough may be given out for a size. One that isn't split is kept for
// large requests, of which it may be larger by a certain size.
func (c *Cache) suits(b *block, size int64) bool {
	if size < c.opts.MaxSplitSize {
		return b.size < c.opts.MaxSplitSize
	}
	return b.size < size+c.opts.MaxNonSplitRounding
}

// giveOut makes a block, which is in no set, an allocation of n bytes.
func (c *Cache) giveOut(b *block, n, size int64) uintptr {
	wasSplit := b.isSplit()
	if c.shouldSplit(b, size) {
		rest := b
		b = c.splitFront(rest, size)
		rest.pool.put(rest)
		if !b.seg.expandable {
			if wasSplit {
				c.stats.InactiveSplitBytes.change(b.pool, -b.size)
			} else {
				c.stats.InactiveSplit.change(b.pool, 1)
				c.stats.InactiveSplitBytes.change(b.pool, rest.size)
			}
		}
	} else if wasSplit && !b.seg.expandable {
		c.stats.InactiveSplit.change(b.pool, -1)
		c.stats.InactiveSplitBytes.change(b.pool, -b.size)
	}
	b.allocated, b.requested = true, n
	b.frames = c.history.callers(b.frames)
	c.allocated.insert(b)
	c.stats.Allocation.change(b.pool, 1)
	c.stats.AllocatedBytes.change(b.pool, b.size)
	c.stats.Active.change(b.pool, 1)
	c.stats.ActiveBytes.change(b.pool, b.size)
	c.stats.RequestedBytes.change(b.pool, n)
	if b.size >= c.opts.MaxSplitSize {
		c.stats.OversizeAllocations.change(1)
	}
	c.history.add(actionAlloc, b, b.addr, n)
	return b.addr
}

// Free gives back what Malloc returned; 0 is nothing. The memory is reused on its stream at once, unless other streams
// were recorded to use it: then after what is now on them. A pointer that is no allocation is a [*PointerError].
func (c *Cache) Free(addr uintptr) error {
	if addr == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.allocated.find(addr)
	if b == nil {
		return c.wrongPointer("Free", addr)
	}
	if len(b.uses) > 0 && c.capturing == 0 {
		if err := c.recordUses(b); err != nil {
			return err // nothing is changed yet
		}
	}
	c.allocated.remove(b)
	b.allocated = false
	c.stats.Allocation.change(b.pool, -1)
	c.stats.AllocatedBytes.change(b.pool, -b.size)
	if b.size >= c.opts.MaxSplitSize {
		c.stats.OversizeAllocations.change(-1)
	}
	c.history.add(actionFreeRequested, b, b.addr, b.requested)
	switch {
	case len(b.uses) > 0:
		c.deferred = append(c.deferred, b)
	case b.events == 0:
		return c.freeBlock(b)
	}
	return nil
}

// freeBlock makes a block that isn't used any more free.
func (c *Cache) freeBlock(b *block) error {
	c.history.add(actionFreeCompleted, b, b.addr, b.requested)
	size, requested := b.size, b.requested
	b.requested = 0
	var blocks, bytes int64 // by which inactive split memory changes
	for _, n := range [2]*block{b.prev, b.next} {
		if merged := c.merge(b, n); merged > 0 {
			blocks--
			bytes -= merged
		}
	}
	b.pool.put(b)
	if b.isSplit() {
		blocks++
		bytes += b.size
	}
	if !b.seg.expandable {
		c.stats.InactiveSplit.change(b.pool, blocks)
		c.stats.InactiveSplitBytes.change(b.pool, bytes)
	}
	c.stats.Active.change(b.pool, -1)
	c.stats.ActiveBytes.change(b.pool, -size)
	c.stats.RequestedBytes.change(b.pool, -requested)
	switch {
	case c.opts.NoCaching:
		return c.releaseSegment(b)
	case !c.streams[b.stream] && c.capturing == 0 && b.pool.gives():
		return c.giveBack(b) // no allocation can get it any more
	}
	return nil
}

// RecordStream says that work on another stream uses an allocation, so that Free must wait for it. 0 and the
// allocation's own stream are nothing.
func (c *Cache) RecordStream(addr uintptr, s Stream) error {
	if addr == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.allocated.find(addr)
	if b == nil {
		return c.wrongPointer("RecordStream", addr)
	}
	return c.record(b, s)
}

// Used is RecordStream of the allocation that an address lies in; nothing if it's in none.
func (c *Cache) Used(addr uintptr, s Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.allocated.find(addr)
	if b == nil {
		b = c.blockAt(addr)
	}
	if b == nil || !b.allocated {
		return nil
	}
	return c.record(b, s)
}

// Hold keeps the allocation that an address lies in until release is called, even if it's freed before: for work that
// no stream has yet. Other allocations don't wait for it, and may be out of memory meanwhile. Hold does nothing for an
// address that is in none.
func (c *Cache) Hold(addr uintptr) (release func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blockAt(addr)
	if b == nil || !b.allocated {
		return func() error { return nil }
	}
	b.events++
	return func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.happened(b)
	}
}

// happened notes that one of a block's events has happened.
func (c *Cache) happened(b *block) error {
	if b.events--; b.events == 0 && len(b.uses) == 0 && !b.allocated {
		return c.freeBlock(b)
	}
	return nil
}

// record notes that a stream uses a block. The caller has the lock.
func (c *Cache) record(b *block, s Stream) error {
	if !c.streams[s] {
		if err := c.meet(s); err != nil {
			return err
		}
	}
	if s != b.stream && !slices.Contains(b.uses, s) {
		b.uses = append(b.uses, s)
	}
	return nil
}

// Size returns how many bytes an allocation really has.
func (c *Cache) Size(addr uintptr) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.allocated.find(addr)
	if b == nil {
		return 0, c.wrongPointer("Size", addr)
	}
	return b.size, nil
}

// Base returns the allocation that an address lies in, which may be its beginning, and its size.
func (c *Cache) Base(addr uintptr) (base uintptr, size int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.blockAt(addr); b != nil && b.allocated {
		return b.addr, b.size, nil
	}
	return 0, 0, c.wrongPointer("Base", addr)
}

// Segment returns the driver's memory that an address lies in, which is what can be given to other processes.
func (c *Cache) Segment(addr uintptr) (base uintptr, size int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.blockAt(addr); b != nil && b.allocated {
		return b.seg.addr, b.seg.size, nil
	}
	return 0, 0, c.wrongPointer("Segment", addr)
}

// blockAt returns the block that an address lies in, or nil.
func (c *Cache) blockAt(addr uintptr) *block {
	i, found := slices.BinarySearchFunc(c.segments, addr, func(s *segment, a uintptr) int {
		switch {
		case s.addr < a:
			return -1
		case s.addr > a:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 || addr-c.segments[i].addr >= uintptr(c.segments[i].size) {
		return nil
	}
	b := c.segments[i].first
	for addr-b.addr >= uintptr(b.size) {
		b = b.next
	}
	return b
}

func (c *Cache) wrongPointer(op string, addr uintptr) error {
	e := &PointerError{Op: op, Addr: addr, Kind: ErrForeignPointer}
	if b := c.blockAt(addr); b != nil && b.mapped {
		e.Base, e.Size, e.Kind = b.addr, b.size, ErrInteriorPointer
		if !b.allocated {
			e.Kind = ErrDoubleFree
		}
	}
	return e
}

// ForgetStream tells that a stream is about to be destroyed; allocations that its work uses wait for that as before. It
// can't be allocated for any more, unless the driver has a stream of that name again; its free memory goes back to the
// driver, and so does what is freed later.
func (c *Cache) ForgetStream(s Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range slices.Concat(c.allocated.slots, c.deferred) {
		if b != nil {
			if err := c.endUse(b, s); err != nil {
				return err
			}
		}
	}
	delete(c.streams, s)
	return c.releaseForgotten()
}
