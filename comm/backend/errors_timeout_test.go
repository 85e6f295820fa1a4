package backend

import (
	"testing"
	"time"
)

// TestTimeoutOfAnother has two ranks give the same timeout: the one that waited, and the one that was missing.
func TestTimeoutOfAnother(t *testing.T) {
	for rank, want := range []string{
		`chorus: rank 0 of "world": barrier #3: timed out after 2s; missing: 1; arrived: 0`,
		`chorus: rank 1 of "world": barrier #3: another rank timed out after 2s; missing: 1; arrived: 0`,
	} {
		e := &TimeoutError{Where{Comm: "world", Op: "barrier", Seq: 3, Reporter: rank},
			Attendance{Elapsed: 2 * time.Second, Missing: []int{1}, Arrived: []int{0}}}
		if got := e.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
