// Package mem is a fabric whose ranks are goroutines of one process.
//
// A message is copied once, from the sender's buffer into the receiver's; a send
// is done when it was received, but small ones are buffered. Ranks of one host
// share memory: a buffer is reached where it lies.
//
//	ranks := mem.NewWorld(4)
//	for _, f := range ranks {
//		go work(f)
//	}
//
// Under the name "mem" fabric.Open finds the other ranks through Config.Exchange;
// they must live in the same process.
//
// Invariants: nothing here starts a goroutine that outlives its work; posting and
// completing a message allocates nothing once as many were under way before.
package mem
