// Package backend is the contract between the communicator and what carries its
// operations out. Programs use package comm; this package is for authors of a backend.
//
// An operation is a value, [Op]: package comm validates the caller's arguments,
// fills an Op and passes it to [Backend.Submit] and, for point-to-point
// operations, [Backend.Wait]. A backend registers under a name, in the manner of
// database/sql:
//
//	func init() { backend.Register("mine", open) }
//
//	func open(ctx context.Context, c backend.Config) (backend.Backend, error) { ... }
//
// Package comm/commtest is the suite that every backend must pass.
//
// Invariants: an Op that reaches a backend is valid in itself (ranks in range,
// lengths fit, dtype admits the reduction); what only a comparison between ranks can
// show is the backend's to find. Collectives reach Submit one at a time, in issue order.
package backend
