// Package nccl is a backend over NCCL, and over the libraries with its interface: NCCLX and RCCL. The library is opened
// when a communicator begins, and enqueues operations on the streams of a device by itself.
//
//	import _ "github.com/chorus-comms/chorus/comm/nccl" // registers "nccl", "ncclx" and "rccl"
//
//	c, err := comm.New(ctx, comm.WithBackend("nccl"), comm.WithDevice("cuda:0"))
//
// library.go opens libraries; enqueue.go says what each operation is in the library's; window.go is windows; control.go
// is what ranks tell each other beside it, and word.go what they do when it's broken; regroup.go makes communicators of
// old ones; backend.go is the rest. Package abi is the library's interface, and [Supply]
// puts another one in its place.
//
// Invariants: what a library can do is its symbols' to say. Ranks meet in the store before the library's own start,
// which has no deadline and names nobody; what they tell each other later goes through one that rank 0 serves. A
// failure is told to the other ranks there before the library is aborted: so every rank has the first cause, whatever
// its library says afterwards. docs/nccl.md says what NCCL can't.
package nccl
