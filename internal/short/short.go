// Package short tells tests whether they are to be brief. `make test` has ten minutes for everything, and sets
// CHORUS_TEST_SHORT; `make test-long`, and running a test by hand, run the long forms. It's a variable and not the flag
// -short because go test then knows which packages read it, and takes the results of the others from its cache the
// second time.
package short

import (
	"os"
	"testing"
)

// Run reports whether tests are to be brief: fewer sizes, worlds or rounds.
func Run() bool { return os.Getenv("CHORUS_TEST_SHORT") == "1" }

// Skip leaves a whole test out of a brief run.
func Skip(t testing.TB) {
	t.Helper()
	if Run() {
		t.Skip("left out: long: make test-long")
	}
}

// Of returns the first of two numbers in a brief run, else the second.
func Of[N any](brief, long N) N {
	if Run() {
		return brief
	}
	return long
}
