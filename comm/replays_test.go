package comm

import (
	"sync/atomic"
	"testing"
	"time"
)

// A failure meets no run that has ended, though the last look found it under way. A run that it meets stays noted,
// though its word is cleared when the library stops.
func TestRunsThatAFailureMeets(t *testing.T) {
	var ended, met atomic.Uint32
	r := replays{list: []*replay{{word: &ended, since: time.Now()}, {word: &met}}}
	if x := r.noteRunning(); x != nil {
		t.Error("a run that has ended counts as under way")
	}
	met.Store(1)
	if x := r.noteRunning(); x != r.list[1] {
		t.Error("a run under way isn't noted")
	}
	met.Store(0)
	if x := r.noteRunning(); x != r.list[1] {
		t.Error("a run that was under way is forgotten")
	}
}
