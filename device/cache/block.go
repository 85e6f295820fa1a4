package cache

// segment is memory of the driver.
type segment struct {
	addr       uintptr
	size       int64 // of an expandable segment: of the reserved addresses
	expandable bool
	page       int64  // of an expandable segment: what is mapped at a time
	first      *block // the one that begins at addr
}

// block is a part of a segment: allocated, waiting for events, free or, in an expandable segment, not mapped.
type block struct {
	node // in the pool's free set, or in the set of what isn't mapped

	addr       uintptr
	size       int64
	requested  int64 // what the caller asked for, while the block is active
	stream     Stream
	pool       *pool
	seg        *segment
	prev, next *block // neighbors in the segment
	allocated  bool
	mapped     bool
	events     int      // that have to happen before the block is free
	uses       []Stream // other than the block's own
	born       uint64   // the pool's clock when the block got into the free set
	frames     []uintptr
}

// isSplit says whether the block is not a whole segment.
func (b *block) isSplit() bool { return b.prev != nil || b.next != nil }

// idle reports whether the block is unused.
func (b *block) idle() bool { return !b.allocated && b.events == 0 && len(b.uses) == 0 }

// pool is where a cache looks for free blocks: there are one for small and one for large requests, and a pair for each
// private pool.
type pool struct {
	small    bool
	private  *privatePool // nil for the ordinary ones
	free     tree
	unmapped tree
	clock    uint64 // counts searches, if garbage is collected
}

// gives says whether its free memory may go back to the driver: not what graphs, or other users, count on.
func (p *pool) gives() bool {
	return p.private == nil || p.private.users == 0 || p.private.source != nil
}

// source is where its segments come from, unless that's the driver.
func (p *pool) source() Source {
	if p.private == nil {
		return nil
	}
	return p.private.source
}

func (p *pool) put(b *block) {
	b.born = p.clock
	p.free.insert(b)
}

// newBlock returns a block that may have been one before.
func (c *Cache) newBlock(seg *segment, p *pool, s Stream, addr uintptr, size int64) *block {
	b := c.spare
	if b == nil {
		b = new(block)
	} else {
		c.spare = b.next
	}
	*b = block{seg: seg, pool: p, stream: s, addr: addr, size: size, mapped: true, uses: b.uses[:0], frames: b.frames[:0]}
	return b
}

// dropBlock takes a block out of its segment's list.
func (c *Cache) dropBlock(b *block) {
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		b.seg.first = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	*b = block{uses: b.uses[:0], frames: b.frames[:0]}
	b.next, c.spare = c.spare, b
}

// splitFront makes the front of a block a block of its own and leaves the rest in b. Neither is in a set.
func (c *Cache) splitFront(b *block, size int64) (front *block) {
	front = c.newBlock(b.seg, b.pool, b.stream, b.addr, size)
	front.mapped = b.mapped
	front.prev, front.next = b.prev, b
	if b.prev != nil {
		b.prev.next = front
	} else {
		b.seg.first = front
	}
	b.prev = front
	b.addr += uintptr(size)
	b.size -= size
	return front
}

// merge lets b absorb a neighbor, if that is as idle and as mapped as b, and returns how much that was.
func (c *Cache) merge(b, neighbor *block) int64 {
	if neighbor == nil || !neighbor.idle() || neighbor.mapped != b.mapped {
		return 0
	}
	if neighbor.mapped {
		b.pool.free.remove(neighbor)
	} else {
		b.pool.unmapped.remove(neighbor)
	}
	size := neighbor.size
	if neighbor == b.prev {
		b.addr = neighbor.addr
	}
	b.size += size
	c.dropBlock(neighbor)
	return size
}
