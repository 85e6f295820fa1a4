// Package hybrid is the fabric of jobs of any shape: shared memory between the
// ranks of a host, TCP between hosts. It's registered as "auto".
//
//	f, err := hybrid.Open(ctx, fabric.Config{Rank: rank, Size: size, HostID: host, Exchange: exchange})
//	f.Path(peer)                               // "shm", "tcp" or "self"
//	space, err := f.Space(ctx, comm, f.Locals(), 8<<20)
//
// If memory can't be shared on some host, all ranks use TCP instead and [Fabric.Why]
// tells the reason.
//
// # Options
//
// "shm" is auto, on (an error if memory can't be shared) or off. All others are
// those of packages shm and tcp.
//
// # Invariants
//
//   - Both paths deliver to one Matcher, so that a receive from any source takes
//     whatever comes first.
//   - All ranks agree on the paths: what one of them can't do, none does.
//   - Nothing is opened that no peer needs.
package hybrid
