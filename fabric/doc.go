// Package fabric moves bytes between the ranks of a job.
//
// A [Fabric] gives one rank its links to all others. Two ways of moving stand
// side by side:
//
//   - Two-sided: [Fabric.Send] and [Fabric.Recv] post a [Msg]; messages between
//     two ranks with equal [Key] match in the order in which they were posted.
//   - One-sided: a fabric whose ranks share memory also implements [Sharer]. The
//     ranks of one host then hold a [Space] per communicator: flags, a small slot
//     beside each flag, scratch, and a way to find each other's buffers.
//
// The packages below implement the interface: mem between goroutines of one process, shm between
// processes of one host, tcp between any processes, ucx over UCX. Package hybrid is shm inside a host, and tcp or
// a faster one between hosts. Package fault wraps another fabric and breaks it on purpose. Package fabrictest is
// the suite that each of them, and any outside fabric, must pass:
//
//	func TestFabric(t *testing.T) { fabrictest.Run(t, openWorld) }
//
// A fabric is opened by name with [Open]; an outside package adds its own with
// [Register]:
//
//	f, err := fabric.Open(ctx, "tcp", fabric.Config{Rank: 0, Size: 2, Exchange: exchange})
//
// Invariants: A posted message completes exactly once, with or without an error. Data from a peer
// is checked before it's used. The loss of a peer completes every message that waits for it.
// Nothing here logs or exits.
package fabric
