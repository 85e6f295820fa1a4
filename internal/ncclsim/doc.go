// Package ncclsim is a stand-in for NCCL in Go: it fills the library's table of functions, so that package comm/nccl,
// its order on streams and its failures run without a GPU, on devices whose memory engines of the process can touch.
//
//	lib, err := ncclsim.New(ncclsim.Options{Version: "2.27.3", Driver: driver})
//	_, err = nccl.Supply("NCCL", "sim-2.27", lib.Table(), "accinte")
//
// A communicator is one of package comm/native, whose ranks meet in a store that the process of the unique id serves,
// and which may be in several processes; what is enqueued is a function of the stream that carries the operation out
// there. A version has the functions that this release has, and takes the configurations that it packs.
//
// As NCCL does, it carries each call of a communicator that doesn't block out on a thread of its own from 2.23 on, and
// doesn't finalize, destroy or abort one while a graph has an operation of it.
//
// Invariants: it behaves as the library does also where that's of no help. What doesn't fit hangs until the
// communicator is aborted, and so does what needs a rank that is gone, of which the others hear as of a remote error;
// an abort is this rank's alone; work behind what was aborted runs.
package ncclsim
