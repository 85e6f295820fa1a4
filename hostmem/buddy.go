package hostmem

import "math/bits"

const (
	minOrder = 8  // 256 B: a few cache lines, so that neighbours never share one, and aligned for any vector
	maxOrder = 22 // 4 MiB: the size of a slab
	slabSize = 1 << maxOrder
)

// buddy divides a slab into blocks of powers of two, each aligned to its size within the slab. Its state lives on the
// Go heap and not in the slab, where a faulty peer could overwrite it.
//
// The blocks form a binary tree in heap order: node 1 is the slab, nodes 2i and 2i+1 are the halves of node i. The
// value longest[i] is one more than the order of the largest free block below node i, or 0 if there is none.
type buddy struct {
	longest [2 << (maxOrder - minOrder)]uint8
}

func newBuddy() *buddy {
	b := new(buddy)
	for i := 1; i < len(b.longest); i++ {
		b.longest[i] = uint8(nodeOrder(i) + 1)
	}
	return b
}

func nodeOrder(node int) int { return maxOrder + 1 - bits.Len(uint(node)) }

// orderFor returns the order of the smallest block that holds n bytes.
func orderFor(n int) int {
	if n <= 1<<minOrder {
		return minOrder
	}
	return bits.Len(uint(n - 1))
}

// fits reports whether alloc(order) would succeed.
func (b *buddy) fits(order int) bool { return int(b.longest[1]) > order }

// empty reports whether nothing is allocated.
func (b *buddy) empty() bool { return b.longest[1] == maxOrder+1 }

// alloc takes a block and returns its offset. The caller has checked that it fits.
func (b *buddy) alloc(order int) (offset int) {
	node := 1
	for o := maxOrder; o > order; o-- {
		// Prefer the half whose largest block is smaller: large ones stay whole.
		l, r := b.longest[2*node], b.longest[2*node+1]
		node *= 2
		if int(l) <= order || (int(r) > order && r < l) {
			node++
		}
	}
	b.longest[node] = 0
	offset = (node - 1<<(maxOrder-order)) << order
	for node /= 2; node > 0; node /= 2 {
		b.longest[node] = max(b.longest[2*node], b.longest[2*node+1])
	}
	return offset
}

// free returns a block taken with the same order and merges it with its free neighbours.
func (b *buddy) free(offset, order int) {
	node := 1<<(maxOrder-order) + offset>>order
	b.longest[node] = uint8(order + 1)
	for node /= 2; node > 0; node /= 2 {
		order++
		l, r := b.longest[2*node], b.longest[2*node+1]
		if int(l) == order && int(r) == order { // both halves wholly free
			b.longest[node] = uint8(order + 1)
		} else {
			b.longest[node] = max(l, r)
		}
	}
}
