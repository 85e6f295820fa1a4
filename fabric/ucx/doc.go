// Package ucx is a fabric over UCX (libucp), which knows the networks of supercomputers: InfiniBand, RoCE and others,
// by RDMA, besides TCP and shared memory. UCX is opened at run time, without cgo:
//
//	import _ "github.com/chorus-comms/chorus/fabric/ucx" // registers "ucx"
//
//	c, err := comm.New(ctx, comm.WithFabric("ucx"))
//
// The fabric "auto" takes it between hosts where all ranks have a network with RDMA.
//
// A rank has one worker of UCX, and an endpoint for each rank that it has exchanged a message with, or waits for.
// Messages are UCX's tag messages, of two kinds:
//
//   - A frame is a header, with the bytes of a small message or without. It comes into one of the buffers that are
//     posted in advance, and then goes to the Matcher.
//   - The bytes of a larger message follow when its receiver, having matched the header with a receive, has posted that
//     to UCX and granted them, under a tag that it draws. UCX moves them from buffer to buffer, by one-sided access
//     where the transport has it.
//
// A goroutine that waits for a message makes UCX progress itself. One goroutine does so where none waits. It sleeps in
// the runtime's poller until UCX's event descriptor has fired.
//
// UCX reports that an endpoint has failed by a call; heartbeats find peers that fall silent.
//
// # Options
//
//	eager       largest message, in bytes, that is sent with its header
//	window      bytes of such messages that a peer may send before they're received
//	heartbeat   how long a peer may be silent; 0: for ever
//	errors      peer: UCX reports peers that fail, and uses only transports that can tell; none: it uses any transport
//	transports  what UCX_TLS would say
//	devices     what UCX_NET_DEVICES would say
//
// # Invariants
//
//   - The worker is used by one goroutine at a time, and never while the Matcher is called or a message is completed.
//   - A frame without its sender's key has no effect.
//   - UCX has no buffer of a message that is done.
package ucx
