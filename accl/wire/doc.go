// Package wire is the protocol of ACCL's emulator, both sides: an engine behind sockets, and the device that reaches
// one.
//
//	e, err := wire.Listen(ctx, wire.Config{World: 2, Rank: 0, StartPort: 5500, Protocol: abi.RDMA})
//	err = e.Serve(ctx)
//
//	dev, err := wire.Dial(ctx, 2, 0, 5500) // for accl.New
//
// The sockets are ZeroMQ's, on 127.0.0.1, for processes of the same user. With W ranks from port S on, the engine of
// rank r has its commands at S+r, what it sends to other engines at S+W+r, what it sends to its kernel at S+2W+r; what
// comes from the kernel is at S+3W+r.
// command.go is the commands, JSON objects; packet.go what engines send each other; kernel.go the streams of kernels;
// emulator.go and network.go are the side of the engine, device.go the other; limits.go is what may come.
//
// Either side may be ACCL's own: an emulator of this package stands in its place under its driver and between its
// emulators.
//
// Invariants: no bytes make a parser panic; a command that can't be carried out has a status; a device whose engine
// says nothing any more gives up.
package wire
