// Package mybackend is a backend written outside of Chorus. Every operation goes
// through one hub, in the process of rank 0: a collective is complete when the
// hub has heard from every rank, and the hub then tells each rank its result.
//
//	import _ "example.com/thirdparty/mybackend"
//
//	c, err := comm.New(ctx, comm.WithBackend("star"))
//
// It's as slow as it's simple, and shows all that a backend must do: compare
// what the ranks call, name those who are missing, pass a failure on to
// everybody, match messages, split.
//
// wire.go has what travels, hub.go the hub, star.go a rank's part, p2p.go its
// sends and receives, collective.go the arithmetic.
//
// Invariants: a rank's connection is read at all times, so the hub never waits
// for a rank for long; reductions are folded in the order of the ranks, by the
// hub alone, so that every rank gets the same bits; the hub lives until the last
// rank has left, which rank 0's last Finalize waits for.
package mybackend
