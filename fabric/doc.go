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
// The packages below implement the interface: mem (goroutines of one process),
// shm (processes of one host), tcp (any host), hybrid (shm inside a host, tcp
// between hosts) and fault (wraps another and breaks it on purpose). Package
// fabrictest is the suite that each of them, and any outside fabric, must pass:
//
//	func TestFabric(t *testing.T) { fabrictest.Run(t, openWorld) }
//
// A fabric is opened by name with [Open]; an outside package adds its own with
// [Register]:
//
//	f, err := fabric.Open(ctx, "tcp", fabric.Config{Rank: 0, Size: 2, Exchange: exchange})
//
// Invariants: a posted message completes exactly once, with or without an
// error; nothing that a peer sends is used before it was checked; a lost peer
// completes every message that waits for it; nothing here logs or exits.
package fabric
