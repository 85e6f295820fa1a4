package transport

import (
	"math/bits"
	"sync"
)

// Buffers keeps buffers for messages that come before their receives are posted.
// Unlike sync.Pool it allocates nothing, and what it keeps is bounded. The zero Buffers is ready.
type Buffers struct {
	mu   sync.Mutex
	free [48][][]byte // by the logarithm of their size
	kept int          // bytes
}

const (
	smallest = 8       // logarithm of the smallest size
	poolKeep = 8 << 20 // bytes
)

func class(n int) int { return max(smallest, bits.Len(uint(n-1))) }

// Get returns a buffer of n bytes, n > 0, with any content.
func (b *Buffers) Get(n int) []byte {
	c := class(n)
	b.mu.Lock()
	if k := len(b.free[c]); k > 0 {
		buf := b.free[c][k-1]
		b.free[c] = b.free[c][:k-1]
		b.kept -= 1 << c
		b.mu.Unlock()
		return buf[:n]
	}
	b.mu.Unlock()
	return make([]byte, n, 1<<c)
}

// Put takes a buffer of Get back; nil is allowed.
func (b *Buffers) Put(buf []byte) {
	if buf == nil {
		return
	}
	c := class(cap(buf))
	b.mu.Lock()
	if b.kept+cap(buf) <= poolKeep {
		b.free[c] = append(b.free[c], buf[:0])
		b.kept += cap(buf)
	}
	b.mu.Unlock()
}
