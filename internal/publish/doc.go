// Package publish shows others what the hot path does, at next to no cost: one goroutine stores, any number load.
//
//	publish.Word(&x.seq, seq)    // the owner
//	atomic.LoadUint64(&x.seq)    // anybody
//
// Unlike an atomic store, it isn't ordered before the loads that follow it: two goroutines that each store their word
// and then load the other's may both miss the other's value.
package publish
