// Package publish shows others what the hot path does, at next to no cost: one goroutine stores, any number load.
//
//	publish.Word(&x.seq, seq)    // the owner
//	atomic.LoadUint64(&x.seq)    // anybody
//
// Unlike an atomic store, it isn't ordered before the loads that follow it: a goroutine that stores its word and then
// loads another's may miss a value that the other stored before it loaded this one.
package publish
