// Package streamed is a backend for devices of one process, which enqueues operations on their streams by itself as the
// libraries of vendors do ([backend.Enqueuer]): what such a backend meets is tested with it, without their hardware.
//
//	import _ "github.com/chorus-comms/chorus/internal/streamed" // registers "streamed"
//
//	c, err := comm.New(ctx, comm.WithBackend("streamed"), comm.WithDevice("accinte:1"))
//
// The ranks are goroutines of a process. An operation is work of its stream that waits until all have come, of whom the
// last one does it for all, by the table of operations. Messages have neither tags nor any source, and nothing can be
// withdrawn: an operation that's overdue breaks the communicator.
//
// Invariants: what meets is fixed when it's enqueued, by the order of the calls; runs of a graph meet the same runs of
// others'. A rank doesn't leave while another may touch its memory.
package streamed
