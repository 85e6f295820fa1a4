// Package commtest is the conformance suite of backends: one call runs it.
//
//	func TestConformance(t *testing.T) {
//		commtest.Run(t, commtest.Config{
//			Open: func(t testing.TB, size int) []*comm.Comm { ... one per rank, in this process ... },
//		})
//	}
//
// The suite drives the public API of package comm and compares every result with
// its definition, computed here in plain loops. Each rank is a goroutine, or a process
// of its own that runs the suite with the others (Config.Meet). Tests of features that a backend
// lacks (comm.Capabilities) are skipped and named in the log.
//
// CHORUS_TEST_LONG=1 runs all sizes and worlds.
package commtest
