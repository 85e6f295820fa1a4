// Package engine is an offload engine of ACCL in Go: collectives carried out beside the memory, by words that a driver
// writes. It behaves as the engine of the hardware, whose firmware and data movers it stands for.
//
//	net := engine.NewNetwork()
//	e := engine.New(engine.Config{Session: 0, Protocol: abi.RDMA, Network: net.Port(0)})
//	net.Attach(0, e)
//	e.Write(abi.RXBufferSize, 1024)                                   // exchange memory
//	status := e.Controller().Start(abi.Call{Scenario: abi.Nop}).Wait() // a call
//
// Its files:
//
//   - exchange.go: the words that engine and driver share; config.go: the calls that set it up.
//   - controller.go, call.go: a caller's queue, and one call.
//   - memory.go, stream.go: where data lies, and the streams of a kernel beside the engine.
//   - move.go: the data mover, which takes up to two operands through arithmetic and compression to a result;
//     datapath.go is those two.
//   - inbox.go: eager messages in their RX buffers, and the notifications of rendezvous.
//   - The rest is the firmware: a file for each collective, eager and rendezvous; spares.go: where reductions meet.
//   - network.go: how engines reach each other, and the network of engines in one process.
//
// Its messages are those of ACCL's firmware: order, tags, numbers, sizes and elements are a contract, which
// firmware_test.go has from ACCL's sources. With the register abi.DirectMaxRanks reductions have messages of their own.
//
// It differs from the hardware's engine on purpose, in nothing that the ABI shows. Calls of different controllers
// overlap where one of them waits. All collectives exist with every protocol. Every size works, whatever the number of
// RX and spare buffers. Reductions have one order. A message whose tag isn't that of its receive is an error instead of
// a hang.
//
// Invariants: when a call is done, no rank touches its memory any more; an address is never used twice; an eager send
// waits for no rank; any words give a status, not a panic.
package engine
