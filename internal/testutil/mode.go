package testutil

import (
	"os"
	"testing"
)

// Short reports whether tests are to be brief: fewer sizes, worlds or rounds. `make test` has ten minutes for
// everything, and sets CHORUS_TEST_SHORT; `make test-long`, and running a test by hand, run the long forms. It's a
// variable and not the flag -short because go test then knows which packages read it, and takes the results of the
// others from its cache the second time.
func Short() bool { return os.Getenv("CHORUS_TEST_SHORT") == "1" }

// SkipIfShort leaves a whole test out of a brief run.
func SkipIfShort(t testing.TB) {
	t.Helper()
	if Short() {
		t.Skip("left out: long: make test-long")
	}
}

// Pick returns the first of two numbers in a brief run, else the second.
func Pick[N any](brief, long N) N {
	if Short() {
		return brief
	}
	return long
}
