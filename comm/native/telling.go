package native

import (
	"sync"
	"time"
)

// telling counts the goroutines that are telling the others why a communicator broke. Its operations fail as soon as it's
// broken, and whoever called one may finalize it, or end the process, before the others have been told.
type telling struct {
	mu   sync.Mutex
	n    int
	done chan struct{} // closed when n is 0 again
}

func (t *telling) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n++; t.n == 1 {
		t.done = make(chan struct{})
	}
}

func (t *telling) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 {
		close(t.done)
		t.done = nil
	}
}

// now returns what will be closed when nobody is telling any more; nil if nobody is.
func (t *telling) now() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// idle reports whether nobody is telling.
func (t *telling) idle() bool { return t.now() == nil }

// wait returns when nobody is telling. What has broken the communicator by now has been told then.
func (t *telling) wait() {
	if done := t.now(); done != nil {
		<-done
	}
}

// within is wait for so long at most.
func (t *telling) within(d time.Duration) {
	done := t.now()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(d):
	}
}
