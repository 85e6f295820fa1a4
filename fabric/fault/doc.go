// Package fault wraps a fabric and breaks it on purpose, to test what is above.
//
//	f, faults := fault.Wrap(inner, fault.Rule{Do: fault.Drop, Peer: 2, Classes: fault.On(fabric.Collective),
//		After: 10, Count: 1})
//	...
//	faults.Cut(1, errors.New("cable pulled"))
//
// Beside rules there is what happens to a rank as a whole: [Faults.Freeze] stops it,
// [Faults.Kill] ends it, and [Faults.Arm] chooses the moment.
//
// Rules act on what this rank sends, in the order in which it's sent. Opened by
// name, "fault" wraps the fabric that option "inner" names, with rules from option
// "script":
//
//	drop peer=2 class=collective after=10 count=1; delay=5ms chance=0.01; seed=7
//
// Invariants: what no rule touches goes through unchanged and, unless some of it
// is delayed, in the same order; the same rules, seed and order of sends break the
// same messages.
package fault
