// Package publish shows others what the hot path does, at next to no cost: one goroutine stores, any number load.
//
//	publish.Word(&x.seq, seq)    // the owner
//	atomic.LoadUint64(&x.seq)    // anybody
//
// Unlike an atomic store, it isn't ordered before the loads that follow it: who stores a word and then looks at
// another's may miss what the other stored before looking at this one.
package publish
