package cache

// tree is an ordered set of free blocks: a treap (Seidel and Aragon, 1996) whose nodes are the blocks themselves, so
// that nothing is allocated. Blocks are ordered by stream, size and address, or, if byAddress, by stream and address.
type tree struct {
	root      *block
	byAddress bool
	random    uint32
}

// node is the part of a block that a tree uses.
type node struct {
	left, right *block
	priority    uint32
}

func (t *tree) less(a, b *block) bool {
	if a.stream != b.stream {
		return a.stream < b.stream
	}
	if !t.byAddress && a.size != b.size {
		return a.size < b.size
	}
	return a.addr < b.addr
}

func (t *tree) insert(b *block) {
	t.random = t.random*1664525 + 1013904223 // Knuth's "quick and dirty" generator does for balance
	b.priority = t.random
	at := &t.root
	for *at != nil && (*at).priority >= b.priority {
		if t.less(b, *at) {
			at = &(*at).left
		} else {
			at = &(*at).right
		}
	}
	rest := *at
	*at = b
	// The subtree below is split into blocks less than b and the rest.
	low, high := &b.left, &b.right
	for rest != nil {
		if t.less(rest, b) {
			*low, low, rest = rest, &rest.right, rest.right
		} else {
			*high, high, rest = rest, &rest.left, rest.left
		}
	}
	*low, *high = nil, nil
}

// remove takes out b, which is in the set.
func (t *tree) remove(b *block) {
	at := &t.root
	for *at != b {
		if t.less(b, *at) {
			at = &(*at).left
		} else {
			at = &(*at).right
		}
	}
	low, high := b.left, b.right
	for low != nil && high != nil {
		if low.priority >= high.priority {
			*at, at, low = low, &low.right, low.right
		} else {
			*at, at, high = high, &high.left, high.left
		}
	}
	if low != nil {
		*at = low
	} else {
		*at = high
	}
	b.left, b.right = nil, nil
}

// lowerBound returns the first block that isn't less than the key, or nil.
func (t *tree) lowerBound(key *block) (found *block) {
	for b := t.root; b != nil; {
		if t.less(b, key) {
			b = b.right
		} else {
			found, b = b, b.left
		}
	}
	return found
}

// next returns the first block that is greater than the key, or nil.
func (t *tree) next(key *block) (found *block) {
	for b := t.root; b != nil; {
		if t.less(key, b) {
			found, b = b, b.left
		} else {
			b = b.right
		}
	}
	return found
}

// previous returns the last block that is less than the key, or nil.
func (t *tree) previous(key *block) (found *block) {
	for b := t.root; b != nil; {
		if t.less(b, key) {
			found, b = b, b.right
		} else {
			b = b.left
		}
	}
	return found
}

// all returns the blocks in order.
func (t *tree) all() []*block {
	var list []*block
	var walk func(b *block)
	walk = func(b *block) {
		if b != nil {
			walk(b.left)
			list = append(list, b)
			walk(b.right)
		}
	}
	walk(t.root)
	return list
}
