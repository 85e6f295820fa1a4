// Package wire is the protocol of ACCL's emulator, both sides: an engine behind sockets, and the device that reaches
// one.
//
//	e, err := wire.Listen(ctx, wire.Config{World: 2, Rank: 0, StartPort: 5500, Protocol: abi.RDMA})
//	err = e.Serve(ctx)
//
//	dev, err := wire.Dial(ctx, 2, 0, 5500) // for accl.New
//
// The sockets are ZeroMQ's, on 127.0.0.1, for processes of the same user. With W ranks from port S on, the engine of
// rank r takes commands at S+r, sends to other engines at S+W+r, sends to its kernel at S+2W+r, and receives from the
// kernel at S+3W+r. The files: command.go has the commands, JSON objects; packet.go the packets between engines;
// kernel.go the streams of kernels. The engine's side is in emulator.go and network.go, the driver's in device.go.
// limits.go bounds messages.
//
// Either side may be ACCL's own: an emulator of this package works under ACCL's driver and among its emulators.
//
// Invariants: no bytes make a parser panic; a command that can't be carried out has a status; a device whose engine
// falls silent times out.
package wire
