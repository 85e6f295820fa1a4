// Package comm is the communicator: one API for point-to-point, collective and
// one-sided communication between the ranks of a job, over any backend.
//
// A program starts under a launcher (chorus run, torchrun, mpirun, srun, an
// indexed Kubernetes job) or tells its rank itself:
//
//	c, err := comm.New(ctx)                        // rank, size and store come from the launcher
//	defer c.Finalize(ctx)
//
//	x, err := c.Empty(dtype.Float32, 1024)         // memory that peers on this host can map
//	err = c.AllReduce(ctx, x, comm.Sum)            // synchronous: done when it returns
//
//	g := tensor.Of(grads)                          // an ordinary []float32, wrapped without a copy
//	var w comm.Work
//	err = c.AllReduce(ctx, g, comm.Avg, comm.Async(&w), comm.Timeout(5*time.Second))
//	err = w.Wait(ctx)                              // *comm.PeerLostError{Peer: 3, Op: "all_reduce", Seq: 18, ...}
//
//	row, err := c.Split(ctx, []int{0, 1})          // a communicator like any other
//
// There is one method per operation; it's synchronous unless Async is among its
// options. Every rank of a communicator calls the same collectives in the same order.
//
// Errors are typed: match them with errors.As ([MismatchError], [TimeoutError],
// [PeerLostError], ...) or errors.Is ([ErrTimeout], ...). [InvalidArgumentError] means that nothing
// has moved and the communicator is unchanged. After any other failure of a collective it stays
// broken, and every call returns the first cause.
//
// A broken communicator is the beginning of the next: [Comm.Regroup] makes one of the ranks that are left, and of
// newcomers; [Comm.Reconfigure] of processes that have exchanged handles. docs/recovery.md has the rules.
//
// All methods may be called from any number of goroutines. Collectives,
// asynchronous ones included, run one at a time in the order in which they were
// issued; sends and receives run beside them.
//
// In the communicator of a device ([WithDevice]) operations on tensors there are
// enqueued: a synchronous one on the device's current stream, an asynchronous one
// on the communicator's own, and [Work.Wait] makes the current stream wait. A failure there is the
// stream's error; [Work.Synchronize] blocks and returns it. During a capture operations become
// nodes of the graph. On memory that the process can't touch operations block, as the host's.
// docs/devices-and-communication.md has the rules.
//
// Tensors must be contiguous ([InvalidArgumentError] otherwise; see
// tensor.Contiguous) and stay untouched until their operation is done. Inputs are
// never written.
package comm
