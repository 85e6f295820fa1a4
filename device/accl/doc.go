// Package accl is offload engines as devices: memory and streams beside which ACCL's engines carry collectives out.
//
//	import _ "github.com/chorus-comms/chorus/device/accl" // registers "accl"
//
//	c, err := comm.New(ctx, comm.WithBackend("accl"), comm.WithDevice("accl:0"))
//	x, err := tensor.ZerosOn(ctx, dev, dtype.Float32, 1<<20)
//	err = c.AllReduce(ctx, x, comm.Sum) // returns at once: the engine does it when the stream gets there
//
// Engines of this process map the devices' memory, so that it's the operand of their calls as it lies: nothing is
// copied by way of the host. A collective is work of its stream like a copy or a kernel: it begins when what is before
// it is done, and the caller's goroutine has no part in it.
//
// Invariants: those of package device, which devicetest checks. A device gives no more memory than it has.
package accl
