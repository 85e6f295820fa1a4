package base

import (
	"sync"
	"time"
)

// Pending counts the goroutines that are sending the other ranks the reason why a communicator broke. Its operations
// fail as soon as it's broken, and their callers may finalize it, or end the process, before the reason has been
// sent.
type Pending struct {
	mu   sync.Mutex
	n    int
	done chan struct{} // closed when n is 0 again
}

// Begin and End are around what is pending.
func (p *Pending) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.n == 1 {
		p.done = make(chan struct{})
	}
}

// End ends what Begin began.
func (p *Pending) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 {
		close(p.done)
		p.done = nil
	}
}

// now returns what will be closed when nothing is pending any more; nil if nothing is.
func (p *Pending) now() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Idle reports whether nothing is pending.
func (p *Pending) Idle() bool { return p.now() == nil }

// Wait returns when nothing is pending. If the communicator is broken by now, the reason has been
// sent then.
func (p *Pending) Wait() {
	if done := p.now(); done != nil {
		<-done
	}
}

// Within is Wait for so long at most.
func (p *Pending) Within(d time.Duration) {
	done := p.now()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(d):
	}
}
