// Package accl is the driver of ACCL's offload engines: collectives carried out beside the memory.
//
//	d, err := accl.New(ctx, accl.InProcess(e), accl.Config{Ranks: ranks, Local: 0})
//	defer d.Close()
//
//	a, _ := d.Buffer(1024, abi.Float32)
//	b, _ := d.Buffer(1024, abi.Float32)
//	copy(accl.Elements[float32](a), data)
//	err = d.Allreduce(ctx, abi.Sum, a, b, 1024, accl.Compress(abi.Float16))
//
// A call is synchronous unless [Async] is among its options. Its operands are buffers, or streams of the kernel beside
// the engine ([KernelStream]). Buffers are copied to the engine before a call and back behind it where the engine's
// memory isn't the host's; [FromDevice] and [ToDevice] leave that out.
//
// A [Device] is the engine: one of this process ([InProcess]), or one that package accl/wire speaks to.
//
// Invariants: calls on one communicator begin in their order, and those on different ones overlap if the device can do
// it; [After] orders others. A call whose context ends is dropped, and its buffers aren't touched any more when it
// returns. Methods may be called from any goroutine.
package accl
