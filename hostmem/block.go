package hostmem

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Block is a part of a segment, handed out by [Alloc] or [AllocZero].
//
// Keep the Block reachable for as long as its memory is in use, and Free it when done. The memory of a Block that
// became unreachable without Free returns to the pool, but only if Bytes was never called. The garbage collector can't
// see slices of memory that isn't its own, so that such a slice may still be in use.
type Block struct {
	*hold
	base    unsafe.Pointer
	n       int
	cleanup runtime.Cleanup
}

// hold is the state that outlives the Block.
type hold struct {
	part  *part
	freed atomic.Bool
	lent  atomic.Bool // a slice was handed out
}

// Alloc returns a block of n bytes with undefined contents. Blocks below 1 MiB are aligned to 256 bytes, or to their
// size rounded up to a power of two up to the page size; larger ones begin on a page. n may be 0.
func Alloc(n int) (*Block, error) {
	b, _, err := alloc(n)
	return b, err
}

// AllocZero is Alloc with all bytes zero.
func AllocZero(n int) (*Block, error) {
	b, zeroed, err := alloc(n)
	if err == nil && !zeroed {
		clear(unsafe.Slice((*byte)(b.base), n))
	}
	return b, err
}

func alloc(n int) (*Block, bool, error) {
	p, zeroed, err := blocks.take(n)
	if err != nil {
		return nil, false, err
	}
	b := &Block{hold: &hold{part: p}, base: unsafe.Add(p.seg.base, p.offset), n: n}
	b.cleanup = runtime.AddCleanup(b, forget, b.hold)
	return b, zeroed, nil
}

// forget runs when a Block has become unreachable without Free.
func forget(h *hold) {
	if h.freed.Swap(true) {
		return
	}
	if !h.lent.Load() {
		blocks.give(h.part)
		return
	}
	blocks.mu.Lock()
	blocks.stats.Forgotten += h.part.size()
	blocks.mu.Unlock()
}

// Segment is the segment that the block lies in.
func (b *Block) Segment() *Segment { return b.part.seg }

// Offset is the distance in bytes from the start of the segment.
func (b *Block) Offset() int { return b.part.offset }

// Len is the size in bytes that was asked for.
func (b *Block) Len() int { return b.n }

// Pointer is the address of the first byte. It is good while the Block is reachable and not freed.
func (b *Block) Pointer() unsafe.Pointer { return b.base }

// Bytes is the block's memory as a slice, good until Free. From now on the memory is not returned without Free.
func (b *Block) Bytes() []byte {
	b.lent.Store(true)
	return unsafe.Slice((*byte)(b.base), b.n)
}

// Free returns the memory to the pool; nothing may refer to it any more, here or in a peer. Freeing twice is harmless.
func (b *Block) Free() {
	if b.freed.Swap(true) {
		return
	}
	b.cleanup.Stop()
	blocks.give(b.part)
}
