// Package shm is the fabric of processes that share a host's memory.
//
// All ranks must be on one host (package hybrid is for the rest). They may also
// live in one process, as in tests; nothing is different then.
//
//	f, err := shm.Open(ctx, fabric.Config{Rank: rank, Size: size, HostID: host, Exchange: exchange})
//	defer f.Close(ctx)
//	space, err := f.Space(ctx, comm, members, 8<<20)
//
// # How a message travels
//
// Every rank owns an inbox, a shared segment with one ring per peer. A message of
// up to 4 KiB goes through the ring. Of a longer one only the announcement does, and the receiver
// copies the payload once. If the buffer lies in a segment of the sender (package hostmem), the
// receiver maps that. Else it reads the sender's address space, if the kernel permits it. Else the
// sender passes the payload through the ring in pieces.
//
// A receive that is withdrawn (its time is over, say, and the sender was stopped) doesn't take its message along:
// the next that matches gets it, before the messages that the sender sent later. Pieces that come in between are
// kept, in memory of their own: at most as much as the withdrawn receive had room for.
//
// There is no progress thread: a goroutine that waits makes progress. If none waits, a goroutine of
// the fabric does, which sleeps until a peer rings.
//
// # Options
//
//	wait  auto, spin, yield or block: how waits spend their time (auto looks at ranks and cores)
//	cma   auto or off: whether to read memory across processes
//	map   auto or off: whether to map the segments in which peers' buffers lie
//
// # Invariants
//
//   - Nothing is left behind when a process dies: shared memory is anonymous, and
//     the sockets through which its descriptors pass have no names in the file system.
//   - A peer that dies is noticed at once, because its socket ends without a goodbye.
//   - What a peer has written is read once and checked before it is used.
//   - Messages of a pair are sent in the order in which they were posted, full ring or not.
//   - A buffer is not touched once its message is done, or canceled.
//   - Sending and receiving allocate nothing in a steady state.
package shm
