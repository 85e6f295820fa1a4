package native

import "sync"

// telling counts the goroutines that are telling the others why a communicator broke. Its operations fail as soon as it's
// broken, and whoever called one may finalize it before the others have been told.
type telling struct {
	mu   sync.Mutex
	n    int
	done *sync.Cond // n is 0; made by whoever waits first
}

func (t *telling) begin() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *telling) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.done != nil {
		t.done.Broadcast()
	}
}

// idle reports whether nobody is telling.
func (t *telling) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n == 0
}

// wait returns when nobody is telling. What has broken the communicator by now has been told then.
func (t *telling) wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = sync.NewCond(&t.mu)
	}
	for t.n > 0 {
		t.done.Wait()
	}
}
