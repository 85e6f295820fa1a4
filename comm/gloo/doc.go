// Package gloo is a backend whose other ranks may be PyTorch's. It speaks Gloo's wire protocol, with the keys, slots,
// tags and schedules of PyTorch's ProcessGroupGloo. So a rank in Go can be a member of a PyTorch job.
//
//	import _ "github.com/chorus-comms/chorus/comm/gloo"
//
//	c, err := comm.New(ctx, comm.WithBackend("gloo"))
//
// The wire formats are in address.go, record.go and preamble.go. A connection is in pair.go, and its messages
// under way in slot_state.go. The ranks are connected by mesh.go, those of PyTorch 1.13 by pytorch1.go, with TLS by
// tls.go. The schedules are in ring.go and direct.go; fold.go reduces. Operations that PyTorch's ranks lack are
// refused by foreign.go. The backend is in backend.go.
//
// Invariants: Every rank calls the same collectives in the same order, since each rank numbers them by a count of its
// own. No DATA is sent before its receiver has said that it's ready, and none longer than the receiver said, since a
// process of PyTorch would abort. The limits of Gloo's wire are in docs/gloo.md.
package gloo
