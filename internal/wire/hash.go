package wire

// The offset basis and the prime of FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/.
const (
	HashStart = uint64(14695981039346656037)
	prime     = 1099511628211
)

// HashAdd takes one more word into a hash of words that ranks compare: FNV-1a by words of 64 bits, with a shift so that
// high bits reach the low ones. Ranks of one job must compute the same, so it never depends on the process or the
// machine. It is no protection against intent.
//
//	h := wire.HashStart
//	for _, w := range words {
//		h = wire.HashAdd(h, w)
//	}
func HashAdd(h, word uint64) uint64 {
	h = (h ^ word) * prime
	return h ^ h>>29
}

// HashInts is the hash of a list.
func HashInts(list []int) uint64 {
	h := HashStart
	for _, x := range list {
		h = HashAdd(h, uint64(x))
	}
	return h
}
