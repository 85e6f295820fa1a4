package cache

import (
	"cmp"
	"slices"

	"github.com/chorus-comms/chorus/config"
)

// grow gets a new block from the driver, and when there isn't enough memory gives back more and more of what the cache
// holds. The block is in no set. It returns nil with the last error of the driver, which is nil if the memory fraction
// forbids more.
func (c *Cache) grow(p *pool, size int64, s Stream) (*block, error) {
	if c.collects() {
		if err := c.collectGarbage(); err != nil {
			return nil, err
		}
	}
	b, err := c.newSegment(p, size, s)
	if b != nil || err != nil && !isOutOfMemory(err) {
		return b, err
	}
	if released, err := c.releaseAvailable(p, size, s); err != nil {
		return nil, err
	} else if released {
		if b, err = c.newSegment(p, size, s); b != nil || err != nil && !isOutOfMemory(err) {
			return b, err
		}
	}
	if c.capturing > 0 {
		return nil, err // events can't be waited for, and memory that a graph uses can't be given back
	}
	if err := c.releaseCached(); err != nil {
		return nil, err
	}
	c.stats.NumAllocRetries++
	// A block that waited for events may be large enough, and part of a segment that can't be given back. (PyTorch
	// doesn't look again.)
	if b := c.findFree(p, size, s); b != nil {
		return b, nil
	}
	b, err = c.newSegment(p, size, s)
	if r, ok := c.driver.(Reclaimer); ok && isOutOfMemory(err) && p.source() == nil {
		c.mu.Unlock() // the work that is waited for may give memory back itself
		r.Reclaim()
		c.mu.Lock()
		if c.capturing > 0 || p.private != nil && c.private[p.private.id] != p.private {
			return nil, err // since then
		}
		b, err = c.newSegment(p, size, s)
	}
	if b != nil || err != nil && !isOutOfMemory(err) || c.reserver != nil {
		return b, err
	}
	// There may be room for the block, though not for a segment that others share. (PyTorch returns an error here.)
	if bytes := (size + roundLarge - 1) / roundLarge * roundLarge; bytes < c.segmentSize(size) {
		if b, err = c.segmentOf(p, bytes, s); b != nil || err != nil && !isOutOfMemory(err) {
			return b, err
		}
	}
	if b := c.borrow(p, size, s); b != nil {
		return b, nil
	}
	return nil, err
}

// borrow takes the smallest free block that is large enough from segments that aren't searched otherwise: those of
// large requests for a small one, and those of other streams, for which it waits. A block of another stream stays that
// stream's, as an allocation that s uses, so that it goes back when s is done with it. Pools of graphs lend nothing.
// (PyTorch returns an error here.)
func (c *Cache) borrow(p *pool, size int64, s Stream) *block {
	if !p.gives() {
		return nil
	}
	blocks := p.free.all()
	switch {
	case p.small && p.private != nil:
		blocks = append(blocks, p.private.large.free.all()...)
	case p.small:
		blocks = append(blocks, c.large.free.all()...)
	}
	blocks = slices.DeleteFunc(blocks, func(b *block) bool {
		return b.size < size || !c.streams[b.stream] || !c.suits(b, size)
	})
	others := func(b *block) int {
		if b.stream == s {
			return 0
		}
		return 1
	}
	slices.SortFunc(blocks, func(a, b *block) int {
		return cmp.Or(cmp.Compare(others(a), others(b)), cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
	})
	for _, b := range blocks {
		if b.stream == s || c.waitFor(b.stream) == nil { // a stream may have failed, or be captured by others
			b.pool.free.remove(b)
			return b
		}
	}
	return nil
}

// waitFor waits for what a stream has to do.
func (c *Cache) waitFor(s Stream) error {
	e, err := c.driver.Record(s)
	if err != nil {
		return err
	}
	defer c.driver.Release(e)
	return c.driver.Wait(e)
}

// newSegment asks the driver once, for as much as is usual for a block of the size.
func (c *Cache) newSegment(p *pool, size int64, s Stream) (*block, error) {
	bytes := c.segmentSize(size)
	if c.reserver == nil || p.source() != nil {
		return c.segmentOf(p, bytes, s)
	}
	if c.allowed > 0 && c.reserved+bytes > c.allowed {
		return nil, nil
	}
	return c.expand(p, size, s)
}

// segmentOf asks the driver for a segment of so many bytes, which is one block.
func (c *Cache) segmentOf(p *pool, bytes int64, s Stream) (*block, error) {
	if c.allowed > 0 && c.reserved+bytes > c.allowed {
		return nil, nil
	}
	c.reserved += bytes
	if c.opts.UnlockForDriver {
		c.mu.Unlock()
	}
	alloc := c.driver.Alloc
	if from := p.source(); from != nil {
		alloc = from.Alloc
	}
	addr, err := alloc(bytes)
	if c.opts.UnlockForDriver {
		c.mu.Lock()
	}
	if err != nil {
		c.reserved -= bytes
		return nil, err
	}
	seg := &segment{addr: addr, size: bytes}
	c.addSegment(seg)
	b := c.newBlock(seg, p, s, addr, bytes)
	seg.first = b
	if p.private != nil {
		p.private.segments++
	}
	c.stats.Segment.change(p, 1)
	c.stats.ReservedBytes.change(p, bytes)
	c.stats.NumDeviceAlloc++
	if bytes >= c.opts.MaxSplitSize {
		c.stats.OversizeSegments.change(1)
	}
	c.history.add(actionSegmentAlloc, b, addr, bytes)
	return b, nil
}

func (c *Cache) addSegment(seg *segment) {
	i, _ := slices.BinarySearchFunc(c.segments, seg, bySegmentAddress)
	c.segments = slices.Insert(c.segments, i, seg)
}

func (c *Cache) removeSegment(seg *segment) {
	i, _ := slices.BinarySearchFunc(c.segments, seg, bySegmentAddress)
	c.segments = slices.Delete(c.segments, i, i+1)
}

func bySegmentAddress(a, b *segment) int {
	switch {
	case a.addr < b.addr:
		return -1
	case a.addr > b.addr:
		return 1
	}
	return 0
}

// releaseSegment gives the segment of a free block, which is all of it, back to the driver.
func (c *Cache) releaseSegment(b *block) error {
	seg, p := b.seg, b.pool
	free := c.driver.Free
	if from := p.source(); from != nil {
		free = from.Free
	}
	if err := free(seg.addr); err != nil {
		return err
	}
	p.free.remove(b)
	c.reserved -= seg.size
	c.stats.Segment.change(p, -1)
	c.stats.ReservedBytes.change(p, -seg.size)
	c.stats.NumDeviceFree++
	if seg.size >= c.opts.MaxSplitSize {
		c.stats.OversizeSegments.change(-1)
	}
	c.history.add(actionSegmentFree, b, seg.addr, seg.size)
	c.removeSegment(seg)
	c.dropBlock(b)
	c.leftPool(p)
	return nil
}

// EmptyCache waits for all events and gives all free segments back to the driver. It doesn't wait for what [Cache.Hold]
// keeps, which stays.
func (c *Cache) EmptyCache() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.capturing > 0 {
		return invalid("EmptyCache while a graph is captured")
	}
	return c.releaseCached()
}

// releaseCached makes all freed blocks free but those that are held, and gives all free segments back.
func (c *Cache) releaseCached() error {
	if err := c.waitEvents(); err != nil {
		return err
	}
	return c.release(func(*block) bool { return true })
}

// releaseForgotten gives back what is free of streams that were forgotten, unless a graph is captured: then the end of
// that does.
func (c *Cache) releaseForgotten() error {
	if c.capturing > 0 {
		return nil
	}
	return c.release(func(b *block) bool { return !c.streams[b.stream] })
}

// release gives back the free segments, of ordinary pools and of private pools that were released, whose block is
// wanted. Of expandable segments it gives back whole pages.
func (c *Cache) release(wanted func(*block) bool) error {
	pools := []*pool{&c.large, &c.small}
	for _, pp := range c.private {
		pools = append(pools, &pp.large, &pp.small)
	}
	for _, p := range pools {
		if !p.gives() {
			continue
		}
		for _, b := range p.free.all() {
			if !wanted(b) {
				continue
			}
			if err := c.giveBack(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveBack gives what can be of a free block back to the driver: its segment, if it's all of that, or whole pages.
func (c *Cache) giveBack(b *block) error {
	switch {
	case b.seg.expandable:
		return c.unmapBlock(b)
	case !b.isSplit():
		return c.releaseSegment(b)
	}
	return nil
}

// releaseAvailable gives back oversize blocks of the stream, if blocks have a limit to splitting: one that is large
// enough, or several, the largest first, that are large enough together.
func (c *Cache) releaseAvailable(p *pool, size int64, s Stream) (bool, error) {
	if c.opts.MaxSplitSize == config.Unlimited {
		return false, nil
	}
	want := max(size, c.opts.MaxSplitSize)
	c.key.stream, c.key.size, c.key.addr = s, want, 0
	oversize := func(b *block) bool {
		return b != nil && b.stream == s && b.size >= c.opts.MaxSplitSize && !b.seg.expandable && !b.isSplit()
	}
	if b := p.free.lowerBound(&c.key); oversize(b) {
		return true, c.releaseSegment(b)
	}
	var released int64
	for b := p.free.previous(&c.key); released < want && oversize(b); b = p.free.previous(&c.key) {
		released += b.size
		if err := c.releaseSegment(b); err != nil {
			return false, err
		}
	}
	return released >= want, nil
}

// collects says whether garbage is collected.
func (c *Cache) collects() bool { return c.allowed > 0 && c.opts.GarbageThreshold > 0 }

// collectGarbage gives back large segments that were free for a long time, as long as more is reserved than the
// threshold allows. It begins with segments at least as old as the average, and repeats that for the rest.
func (c *Cache) collectGarbage() error {
	excess := c.reserved - int64(c.opts.GarbageThreshold*float64(c.allowed))
	if excess <= 0 {
		return nil
	}
	var old []*block
	var ages uint64
	for _, b := range c.large.free.all() {
		if !b.isSplit() && !b.seg.expandable {
			old = append(old, b)
			ages += c.large.clock - b.born
		}
	}
	for excess > 0 && len(old) > 0 {
		average := ages / uint64(len(old))
		var rest []*block
		for _, b := range old {
			age := c.large.clock - b.born
			if age < average {
				rest = append(rest, b)
				continue
			}
			excess -= b.size
			ages -= age
			if err := c.releaseSegment(b); err != nil {
				return err
			}
		}
		old = rest
	}
	return nil
}

// outOfMemory counts a failure and describes it.
func (c *Cache) outOfMemory(n int64, s Stream, cause error) *OutOfMemoryError {
	free, total, err := c.driver.Memory()
	if err != nil {
		free, total = 0, 0 // the error that is reported is the allocation's
	}
	c.stats.NumOOMs++
	c.history.addOutOfMemory(free, n, s)
	return &OutOfMemoryError{
		Device: c.opts.Device, Requested: n, Total: total, Free: free, Allowed: c.allowed,
		Allocated: c.stats.AllocatedBytes[All].Current, Reserved: c.stats.ReservedBytes[All].Current, Err: cause,
	}
}
