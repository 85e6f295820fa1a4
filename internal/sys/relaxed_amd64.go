//go:build !race && !steps

package sys

// StoreRelaxed stores a word that other goroutines load atomically, after all that was stored before it:
//
//	sys.StoreRelaxed(&x.seq, seq)  // the one goroutine that stores
//	atomic.LoadUint64(&x.seq)      // any goroutine
//
// Unlike an atomic store, it isn't ordered before the loads that follow it: two goroutines that each store their word and
// then load the other's may both miss the other's value. On this processor an ordinary store
// does that, at a tenth of the cost of an atomic one, which waits until all can see it.
func StoreRelaxed(p *uint64, v uint64) { *p = v }
