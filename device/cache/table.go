package cache

// table finds an allocated block by its address: open addressing with linear probing, from which blocks are removed by
// moving those behind up. Unlike a map it never allocates while the number of blocks stays the same.
type table struct {
	slots []*block // the length is a power of two
	used  int
	shift uint
}

func (t *table) home(addr uintptr) int {
	return int(uint64(addr) >> 9 * 0x9e3779b97f4a7c15 >> t.shift)
}

func (t *table) find(addr uintptr) *block {
	if t.used == 0 {
		return nil
	}
	for i := t.home(addr); ; i = (i + 1) & (len(t.slots) - 1) {
		if b := t.slots[i]; b == nil || b.addr == addr {
			return b
		}
	}
}

func (t *table) insert(b *block) {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.grow()
	}
	i := t.home(b.addr)
	for t.slots[i] != nil {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = b
	t.used++
}

func (t *table) remove(b *block) {
	mask := len(t.slots) - 1
	hole := t.home(b.addr)
	for t.slots[hole] != b {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; t.slots[i] != nil; i = (i + 1) & mask {
		// A block may move up if the hole isn't before its home.
		if (i-t.home(t.slots[i].addr))&mask >= (i-hole)&mask {
			t.slots[hole], hole = t.slots[i], i
		}
	}
	t.slots[hole] = nil
	t.used--
}

func (t *table) grow() {
	old := t.slots
	size := max(64, 2*len(old))
	t.slots, t.used, t.shift = make([]*block, size), 0, 64
	for ; size > 1; size /= 2 {
		t.shift--
	}
	for _, b := range old {
		if b != nil {
			t.insert(b)
		}
	}
}
