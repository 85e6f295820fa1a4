package shm

// table hands out IDs for values that a peer refers to. An ID carries a
// generation, so that one that is out of date, or made up, finds nothing.
type table[T any] struct {
	items []item[T]
	free  []uint32
}

type item[T any] struct {
	value T
	gen   uint32
	live  bool
}

func (t *table[T]) put(v T) uint64 {
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.items))
		t.items = append(t.items, item[T]{})
	}
	it := &t.items[i]
	it.value, it.live = v, true
	it.gen++
	return uint64(it.gen)<<32 | uint64(i)
}

// get returns the value with the ID, or nil. The pointer is valid until the next put.
func (t *table[T]) get(id uint64) *T {
	i := uint32(id)
	if uint64(i) >= uint64(len(t.items)) || !t.items[i].live || t.items[i].gen != uint32(id>>32) {
		return nil
	}
	return &t.items[i].value
}

func (t *table[T]) drop(id uint64) {
	it := &t.items[uint32(id)]
	var zero T
	it.value, it.live = zero, false
	t.free = append(t.free, uint32(id))
}

// all calls f with every value; f may drop the one that it is called with.
func (t *table[T]) all(f func(id uint64, v *T)) {
	for i := range t.items {
		if it := &t.items[i]; it.live {
			f(uint64(it.gen)<<32|uint64(i), &it.value)
		}
	}
}
