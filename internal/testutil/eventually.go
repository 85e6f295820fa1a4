package testutil

import (
	"testing"
	"time"
)

// patience is how long Eventually waits: long enough for a machine with a lot of other work.
const patience = 30 * time.Second

// Eventually waits until a condition holds, which it asks for every millisecond. If it doesn't hold within half a
// minute, the test fails with the words, which may have verbs for the values after them. A test that can get a signal
// waits for the signal instead. Call it from the test's goroutine.
//
//	testutil.Eventually(t, func() bool { return s.Sleepers() == 2 }, "two waiters sleep")
func Eventually(t testing.TB, holds func() bool, what string, args ...any) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it didn't happen in "+patience.String()+": "+what, args...)
		}
	}
}
