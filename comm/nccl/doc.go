// Package nccl is a backend over NCCL, and over the libraries with its interface: NCCLX and RCCL. The library is opened
// when a communicator begins, and enqueues operations on the streams of a device by itself.
//
//	import _ "github.com/chorus-comms/chorus/comm/nccl" // registers "nccl", "ncclx" and "rccl"
//
//	c, err := comm.New(ctx, comm.WithBackend("nccl"), comm.WithDevice("cuda:0"))
//
// Libraries are opened in library.go. Each operation is mapped to the library's calls in enqueue.go, and windows in
// window.go. Ranks exchange control data beside the library in control.go, and when the communicator is broken in
// messenger.go. New communicators are made of old ones in regroup.go; backend.go is the rest. Package abi is the
// library's interface, and [Supply] replaces it by another one.
//
// Invariants: A library's symbols decide what it can do. Ranks meet in the store before the library's own start,
// which has no deadline and names no missing rank; later they exchange data through a store that rank 0 serves. A
// failure is sent to the other ranks there before the library is aborted. So every rank has the first cause, whatever
// its library reports afterwards. The limits of NCCL are in docs/nccl.md.
package nccl
