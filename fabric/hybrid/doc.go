// Package hybrid is the fabric of jobs of any shape: one fabric between the ranks of a host, and another between hosts.
// These are shared memory and TCP, or any two that are registered with package transport. One that is preferred to TCP
// ([transport.Prefer]) takes its place where all ranks can use it. The fabric is registered as "auto".
//
//	f, err := fabric.Open(ctx, "auto", fabric.Config{Rank: rank, Size: size, HostID: host, Exchange: exchange})
//
// If memory can't be shared on some host, all ranks use the far fabric instead and [Fabric.Why] tells the reason.
//
// # Options
//
//	near  auto: shm, unless some rank can't take part in it; off; or the name of a fabric that all must have
//	far   auto: a fabric that is preferred to tcp if all ranks can use it, and otherwise tcp; or the name of a fabric
//
// All others are those of the two fabrics, by their names.
//
// # Invariants
//
//   - Both paths deliver to one Matcher, so that a receive from any source takes
//     whatever comes first.
//   - All ranks agree on the paths: what one of them can't do, none does.
//   - Nothing is opened that no peer needs.
package hybrid
