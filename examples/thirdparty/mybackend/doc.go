// Package mybackend is a backend written outside of Chorus, over a library that has messages and one collective of its
// own: package mylib, which stands in for a vendor's and knows nothing of Chorus.
//
//	import _ "example.com/thirdparty/mybackend"
//
//	c, err := comm.New(ctx, comm.WithBackend("mylib"))
//
// backend.go opens the library and says what it can do; link.go is its messages as the seven methods of a fabric. The
// rest is base.Runner: collectives as plans, mismatches, time-outs that name missing ranks, splits, and the news of
// failures. Sums over numbers that the library knows are its own all-reduce's.
package mybackend
