// Package hash64 condenses words that ranks compare: FNV-1a by words of 64 bits, with a
// shift so that high bits reach the low ones. Ranks of one job must compute the same, so it
// never depends on the process or the machine. It is no protection against intent.
//
//	h := hash64.Start
//	for _, w := range words {
//		h = hash64.Add(h, w)
//	}
package hash64

// The offset basis and the prime of FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/.
const (
	Start = uint64(14695981039346656037)
	prime = 1099511628211
)

// Add takes one more word into a hash.
func Add(h, word uint64) uint64 {
	h = (h ^ word) * prime
	return h ^ h>>29
}

// Ints condenses a list.
func Ints(list []int) uint64 {
	h := Start
	for _, x := range list {
		h = Add(h, uint64(x))
	}
	return h
}
