package wire

import "testing"

// TestHashInts hashes lists that differ in order, length and high bits only.
func TestHashInts(t *testing.T) {
	seen := map[uint64][]int{}
	for _, list := range [][]int{nil, {0}, {0, 0}, {1, 2}, {2, 1}, {1 << 62, 0}, {0, 1 << 62}, {-1}, {1, 2, 3}} {
		h := HashInts(list)
		if other, dup := seen[h]; dup {
			t.Errorf("%v and %v have the same hash", list, other)
		}
		seen[h] = list
	}
	// The highest bit must reach the low half, which is what messages show.
	if uint32(HashInts([]int{0, 0})) == uint32(HashInts([]int{-1 << 63, 0})) {
		t.Error("the highest bit doesn't show in the low half")
	}
}
