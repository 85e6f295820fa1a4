// Package relaxed publishes the hot path's state at next to no cost: one goroutine stores, any number load.
//
//	relaxed.Store(&x.seq, seq)    // the owner
//	atomic.LoadUint64(&x.seq)     // any goroutine
//
// Unlike an atomic store, it isn't ordered before the loads that follow it: two goroutines that each store their word
// and then load the other's may both miss the other's value.
package relaxed
