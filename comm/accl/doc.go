// Package accl is the backend "accl": operations of a communicator carried out by ACCL's offload engines.
//
//	import _ "github.com/chorus-comms/chorus/comm/accl"
//
//	c, err := comm.New(ctx, comm.WithBackend("accl"))
//
// Each rank has an engine of its own, in its process. The engine runs the collectives that it supports: sums and maxima
// of float16, float32, float64, int32 and int64, and everything that only moves equal blocks, of any type. All others
// are plans over messages, which are put into the streams of the kernels beside the engines. Windows are peer-to-peer
// buffers where engines reach each other's memory, and messages elsewhere. backend.go opens the engine; meet.go finds
// the others; own.go is its collectives; link.go its messages; window.go the memory of windows.
//
// Hints of the communicator:
//
//   - accl.network: the fabric between engines, such as "tcp"; by default none in one process. "packets": engines of one
//     process send each other the packets of their protocol.
//   - accl.protocol: cyt_rdma, tcp, udp
//   - accl.p2p: off: tensors are copied to the engine's memory and back instead of being mapped by it
//   - accl.rx_buffers, accl.rx_buffer_size, accl.max_eager_size, accl.max_rendezvous_size, accl.max_segment_size: as
//     package accl has them; sizes are in bytes
//   - accl.emulator: engines are processes of their own, behind the sockets of package accl/wire; the value is the port
//     at which they begin
//   - accl.card: a design for a card, which is refused with what is missing
//   - accl.compress, of each operation, too: float16: float32 goes over the wire as that, and is combined in it
//
// On a device the operations are work of its streams, as package comm puts it there: the engine's call begins when the
// stream gets to it, on the stream's goroutine. The backend is no backend.Enqueuer: that is for libraries whose streams
// run nothing of Chorus's, and would cost tags, messages of any source and the deadlines of graphs' replays.
//
// Invariants: an engine's call begins when all ranks have come with the same operation; when an operation has failed,
// no engine touches its tensors any more.
package accl
