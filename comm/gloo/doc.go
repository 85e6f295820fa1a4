// Package gloo is a backend whose other ranks may be PyTorch's: it speaks the wire of Gloo, with the keys, slots, tags
// and schedules of PyTorch's ProcessGroupGloo, so that a rank in Go is a member of a job of PyTorch.
//
//	import _ "github.com/chorus-comms/chorus/comm/gloo"
//
//	c, err := comm.New(ctx, comm.WithBackend("gloo"))
//
// address.go, record.go and preamble.go are the bytes; pair.go is a connection, line.go what is under way on it;
// mesh.go connects the ranks, pytorch1.go those of PyTorch 1.13, tls.go by TLS; ring.go and direct.go are the
// schedules; fold.go reduces; foreign.go refuses what PyTorch's ranks lack; backend.go is the backend.
//
// Invariants: every rank calls the same collectives in the same order, for what numbers them is a count on each rank;
// no DATA leaves before its receiver has said that it's ready, and none longer than it said, since a process of PyTorch
// would abort. docs/gloo.md says what Gloo's wire can't say.
package gloo
