package hostmem

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// largeSize is where blocks get their own segments: from here on a mapping costs less than what sharing would waste.
const largeSize = 1 << 20

// DefaultCacheLimit is how many bytes of freed large blocks are kept for reuse unless SetCacheLimit says otherwise.
const DefaultCacheLimit = 1 << 30

// pool holds the process's blocks. Metadata is on the Go heap; the lock is held for list and tree work and for making
// slabs, never for making large segments.
type pool struct {
	mu     sync.Mutex
	slabs  []*slab
	cached []*Segment // freed large segments, least recently freed first
	limit  int64
	stats  Stats
}

type slab struct {
	seg  *Segment
	tree *buddy
}

var blocks = pool{limit: DefaultCacheLimit}

// part is what a Block holds of the pool; it outlives the Block so that a forgotten block can be returned.
type part struct {
	seg    *Segment
	slab   *slab // nil for a large block, which is the whole of seg
	offset int
	order  int
}

func (p *part) size() int64 {
	if p.slab != nil {
		return 1 << p.order
	}
	return int64(p.seg.size)
}

// largeClass rounds a large size up to one of eight steps per power of two: at most an eighth is wasted, and freed
// segments fit later requests of nearly the same size.
func largeClass(n int) int {
	return roundUp(n, max(pageSize, 1<<(bits.Len(uint(n-1))-4)))
}

// take returns memory for n bytes, and whether it is known to be all zero.
func (p *pool) take(n int) (t *part, zeroed bool, err error) {
	if n < 0 || n > maxSize {
		return nil, false, fmt.Errorf("hostmem: block size %d is not in 0..%d", n, maxSize)
	}
	if n < largeSize {
		t, err = p.takeSmall(orderFor(n))
	} else {
		t, zeroed, err = p.takeLarge(largeClass(n))
	}
	return t, zeroed, err
}

func (p *pool) takeSmall(order int) (*part, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.slabs, func(s *slab) bool { return s.tree.fits(order) })
	if i < 0 {
		seg, err := blockSegment(slabSize)
		if err != nil {
			return nil, err
		}
		i = len(p.slabs)
		p.slabs = append(p.slabs, &slab{seg, newBuddy()})
		p.stats.Cached += slabSize
	}
	s := p.slabs[i]
	t := &part{seg: s.seg, slab: s, order: order, offset: s.tree.alloc(order)}
	p.stats.Cached -= t.size()
	p.handOut(t)
	return t, nil
}

func (p *pool) takeLarge(size int) (*part, bool, error) {
	p.mu.Lock()
	for i := len(p.cached) - 1; i >= 0; i-- { // most recently freed first: most likely still in some cache
		if seg := p.cached[i]; seg.size == size {
			p.cached = slices.Delete(p.cached, i, i+1)
			t := &part{seg: seg}
			p.stats.Cached -= t.size()
			p.handOut(t)
			p.mu.Unlock()
			return t, false, nil
		}
	}
	p.mu.Unlock()
	seg, err := blockSegment(size)
	if err != nil {
		// Memory may be held by the cache; give it back and try once more.
		Trim()
		if seg, err = blockSegment(size); err != nil {
			return nil, false, err
		}
	}
	t := &part{seg: seg}
	p.mu.Lock()
	p.handOut(t)
	p.mu.Unlock()
	return t, true, nil
}

func (p *pool) handOut(t *part) {
	p.stats.InUse += t.size()
	p.stats.Peak = max(p.stats.Peak, p.stats.InUse)
}

// give takes a block's memory back.
func (p *pool) give(t *part) {
	p.mu.Lock()
	p.stats.InUse -= t.size()
	p.stats.Cached += t.size()
	if t.slab != nil {
		t.slab.tree.free(t.offset, t.order)
	} else {
		p.cached = append(p.cached, t.seg)
	}
	drop := p.excess(p.limit, 1)
	p.mu.Unlock()
	closeAll(drop)
}

// excess removes the oldest large segments above limit bytes and all empty slabs but spare, and returns them for
// closing.
func (p *pool) excess(limit int64, spare int) []*Segment {
	var drop []*Segment
	var held int64
	for _, s := range p.cached {
		held += int64(s.size)
	}
	n := 0
	for ; held > limit; n++ {
		held -= int64(p.cached[n].size)
		drop = append(drop, p.cached[n])
	}
	p.cached = slices.Delete(p.cached, 0, n)
	p.slabs = slices.DeleteFunc(p.slabs, func(s *slab) bool {
		if !s.tree.empty() {
			return false
		}
		if spare > 0 {
			spare--
			return false
		}
		drop = append(drop, s.seg)
		return true
	})
	for _, s := range drop {
		p.stats.Cached -= int64(s.size)
	}
	return drop
}

func closeAll(list []*Segment) {
	for _, s := range list {
		_ = s.Close() // munmap and close of what we own can fail only by a bug, which the leak counts would show
	}
}

// SetCacheLimit bounds the bytes of freed large blocks kept for reuse; 0 keeps none. Blocks above the limit are
// released at once.
func SetCacheLimit(bytes int64) {
	blocks.mu.Lock()
	blocks.limit = max(bytes, 0)
	drop := blocks.excess(blocks.limit, 1)
	blocks.mu.Unlock()
	closeAll(drop)
}

// Trim releases all memory that the pool keeps for reuse.
func Trim() {
	blocks.mu.Lock()
	drop := blocks.excess(0, 0)
	blocks.mu.Unlock()
	closeAll(drop)
}

// Stats counts the pool's memory, in bytes, and what is open in the process.
type Stats struct {
	InUse     int64 // in blocks handed out, after rounding to size classes
	Peak      int64 // largest InUse so far
	Cached    int64 // held for reuse
	Forgotten int64 // part of InUse: in blocks that can't be freed any more (see [Block.Bytes])
	Segments  int   // segments open, each with one descriptor; those of NewSegment included
	Mappings  int   // peers' segments mapped
}

// ReadStats returns the present counts. A test that has freed all it allocated sees, after [Trim], the Segments and
// Mappings that it began with.
func ReadStats() Stats {
	blocks.mu.Lock()
	st := blocks.stats
	blocks.mu.Unlock()
	st.Segments = len(index.snapshot())
	st.Mappings = int(liveMappings.Load())
	return st
}
