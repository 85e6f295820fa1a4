// Package fabrictest is the suite that every fabric must pass: this module's and
// any other.
//
//	func TestFabric(t *testing.T) {
//		fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric { ... })
//	}
//
// The ranks are goroutines of the test. [Processes] runs a test body once per
// process instead, for fabrics that need that.
//
// Invariants: no case waits without a deadline, and none takes time for a proof
// of order. A world that a case opens is closed, and nothing of it stays behind.
package fabrictest
