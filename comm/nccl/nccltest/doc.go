// Package nccltest is a stand-in for NCCL in Go. It fills the library's table of functions, so that package comm/nccl,
// its order on streams and its failures run without a GPU. Its devices have memory that engines of the process can
// touch.
//
//	lib, err := nccltest.New(nccltest.Options{Version: "2.27.3", Driver: driver})
//	_, err = nccl.Supply("NCCL", "sim-2.27", lib.Table(), "accinte")
//
// A communicator is one of package comm/native. Its ranks may be in several processes, and meet in a store that the
// process of the unique id serves. Enqueuing an operation enqueues a host function on the stream, which carries the
// operation out. A version has the functions of this release of NCCL, and takes its configuration structs.
//
// Like NCCL from 2.23 on, it runs each call of a non-blocking communicator on a thread of its own. Like NCCL, it
// doesn't finalize, destroy or abort a communicator while a graph has an operation of it.
//
// [BuildNoop] builds another library, all of whose functions return success at once, to measure the calling program
// alone.
//
// Invariants: it behaves as the library does, even where that's unhelpful. Mismatched operations hang until the
// communicator is aborted. So do operations that need a rank that is gone; the others see a remote error. An abort
// affects the calling rank alone. Work that was enqueued behind an aborted operation runs.
package nccltest
