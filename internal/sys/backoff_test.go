package sys

import (
	"testing"
	"time"
)

// A pause is at least as long as it says, and a Backoff sleeps sooner or later, so that a wait does not keep a core.
func TestBackoff(t *testing.T) {
	begin := time.Now()
	Sleep(3 * time.Millisecond)
	if d := time.Since(begin); d < 2*time.Millisecond {
		t.Errorf("slept %v instead of 3 ms", d)
	}
	var b Backoff
	for begin = time.Now(); b.pause < maxPause; b.Pause() {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("after %v the pause is %v", time.Since(begin), b.pause)
		}
	}
	if time.Since(begin) < spinFor {
		t.Errorf("it slept after %v", time.Since(begin))
	}
}
