package cache

import "math/bits"

const (
	minBlock      = 512     // sizes are multiples of it
	smallSize     = 1 << 20 // the largest request that shares a small segment
	smallSegment  = 2 << 20
	minOwnSegment = 10 << 20 // from here on a request has a segment of its own
	roundLarge    = 2 << 20  // whose size is a multiple of it
	maxRequest    = 1 << 60
)

// roundSize returns the size of the block for a request.
func (c *Cache) roundSize(n int64) int64 {
	if n < minBlock {
		return minBlock
	}
	if d := c.divisions(n); d > 1 && n > minBlock*d {
		return roundToPart(n, d)
	}
	return (n + minBlock - 1) &^ (minBlock - 1)
}

// divisions returns the setting for sizes like n: buckets are of powers of two from 1 MiB to 32 GiB.
func (c *Cache) divisions(n int64) int64 {
	bucket := bits.Len64(uint64(n)) - 1 - 20
	return int64(c.opts.RoundupDivisions[min(max(bucket, 0), len(c.opts.RoundupDivisions)-1)])
}

// roundToPart rounds up to a multiple of the d-th part of the power of two below n.
func roundToPart(n, d int64) int64 {
	power := int64(1) << (bits.Len64(uint64(n)) - 1)
	step := power / d
	return (n + step - 1) / step * step
}

// segmentSize returns how much a driver is asked for when a block of the given size is needed.
func (c *Cache) segmentSize(size int64) int64 {
	switch {
	case c.opts.NoCaching:
		return size
	case size <= smallSize:
		return smallSegment
	case size < minOwnSegment:
		return c.opts.LargeSegment
	}
	return (size + roundLarge - 1) / roundLarge * roundLarge
}

// shouldSplit says whether the rest of a block is worth being a block.
func (c *Cache) shouldSplit(b *block, size int64) bool {
	rest := b.size - size
	if b.pool.small || b.seg.expandable {
		return rest >= minBlock
	}
	return size < c.opts.MaxSplitSize && rest > smallSize
}
