package cache

import "errors"

// room is how large an expandable block can get: what follows it may not be mapped yet.
func room(b *block) int64 {
	if b.next != nil && !b.next.mapped {
		return b.size + b.next.size
	}
	return b.size
}

// expand makes a free block of the given size at the end of an expandable segment of the stream, from free and unmapped
// blocks in a row. The block is in no set. The memory fraction has been looked at.
func (c *Cache) expand(p *pool, size int64, s Stream) (*block, error) {
	b, err := c.findExpandable(p, size, s)
	if err != nil {
		return nil, err
	}
	if !b.mapped {
		first := b
		if b, err = c.mapBlock(b, min(b.size, size)); err != nil {
			return nil, errors.Join(err, c.unreserve(first))
		}
	}
	for b.size < size { // what follows is unmapped
		if b, err = c.mapBlock(b.next, min(b.next.size, size-b.size)); err != nil {
			return nil, err
		}
	}
	p.free.remove(b)
	return b, nil
}

// findExpandable returns the first of idle blocks in a row that have the size together. If there are none it reserves
// addresses: an eighth more than the device has memory, so that pages that were unmapped in the middle can be mapped
// again at the end.
func (c *Cache) findExpandable(p *pool, size int64, s Stream) (*block, error) {
	c.key.stream, c.key.addr = s, 0
	for b := p.unmapped.lowerBound(&c.key); b != nil && b.stream == s; b = p.unmapped.next(b) {
		first := b
		if b.prev != nil && b.prev.idle() {
			first = b.prev
		}
		var have int64
		for n := first; n != nil && n.idle() && have < size; n = n.next {
			have += n.size
		}
		if have >= size {
			return first, nil
		}
	}
	_, total, err := c.driver.Memory()
	if err != nil {
		return nil, err
	}
	page := c.opts.LargeSegment
	if p.small {
		page = smallSegment
	}
	g := c.reserver.Granularity()
	page = (page + g - 1) / g * g
	bytes := max(total+total/8, size)
	bytes = (bytes + page - 1) / page * page
	addr, err := c.reserver.Reserve(bytes)
	if err != nil {
		return nil, err
	}
	seg := &segment{addr: addr, size: bytes, expandable: true, page: page}
	c.addSegment(seg)
	b := c.newBlock(seg, p, s, addr, bytes)
	b.mapped = false
	seg.first = b
	p.unmapped.insert(b)
	if p.private != nil {
		p.private.segments++
	}
	return b, nil
}

// mapBlock maps at least size bytes at the beginning of an unmapped block, in whole pages, and returns the free block
// that they are in.
func (c *Cache) mapBlock(b *block, size int64) (*block, error) {
	bytes := (size + b.seg.page - 1) / b.seg.page * b.seg.page
	if c.allowed > 0 && c.reserved+bytes > c.allowed {
		return nil, errFraction
	}
	if err := c.reserver.Map(b.addr, bytes); err != nil {
		return nil, err
	}
	p := b.pool
	p.unmapped.remove(b)
	if bytes < b.size {
		rest := b
		b = c.splitFront(rest, bytes)
		p.unmapped.insert(rest)
	}
	b.mapped = true
	addr := b.addr
	c.merge(b, b.prev)
	c.merge(b, b.next)
	p.put(b)
	c.reserved += bytes
	c.stats.ReservedBytes.change(p, bytes)
	c.stats.NumDeviceAlloc++
	c.history.add(actionSegmentMap, b, addr, bytes)
	return b, nil
}

// unmapBlock gives the whole pages of a free block back. If nothing of the segment is mapped any more, its addresses go
// back, too.
func (c *Cache) unmapBlock(b *block) error {
	seg, p := b.seg, b.pool
	page := uintptr(seg.page)
	from := seg.addr + (b.addr-seg.addr+page-1)/page*page
	to := seg.addr + (b.addr+uintptr(b.size)-seg.addr)/page*page
	if from >= to {
		return nil
	}
	bytes := int64(to - from)
	if err := c.reserver.Unmap(from, bytes); err != nil {
		return err
	}
	p.free.remove(b)
	if before := int64(from - b.addr); before > 0 {
		p.put(c.splitFront(b, before))
	}
	if b.size > bytes {
		rest := b
		b = c.splitFront(rest, bytes)
		p.put(rest)
	}
	b.mapped = false
	c.merge(b, b.prev)
	c.merge(b, b.next)
	p.unmapped.insert(b)
	c.reserved -= bytes
	c.stats.ReservedBytes.change(p, -bytes)
	c.stats.NumDeviceFree++
	c.history.add(actionSegmentUnmap, b, from, bytes)
	return c.unreserve(b)
}

// unreserve gives the addresses of an unmapped block's segment back, if nothing of that is mapped.
func (c *Cache) unreserve(b *block) error {
	if b.isSplit() {
		return nil
	}
	seg, p := b.seg, b.pool
	if err := c.reserver.Unreserve(seg.addr, seg.size); err != nil {
		return err
	}
	p.unmapped.remove(b)
	c.removeSegment(seg)
	c.dropBlock(b)
	c.leftPool(p)
	return nil
}
