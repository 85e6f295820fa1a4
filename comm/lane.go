package comm

import (
	"sync"
	"sync/atomic"
)

// lane runs a communicator's collectives one at a time, in issue order. A caller
// that finds it free runs its own operation, without a lock or an allocation;
// others queue, and a goroutine that lives as long as the queue does runs them.
type lane struct {
	busy   atomic.Uint32 // 1 while a call owns the lane
	queued atomic.Int32  // calls in queue
	mu     sync.Mutex
	queue  []func()
}

// tryAcquire takes the lane if no call owns it and none waits.
func (l *lane) tryAcquire() bool {
	return l.busy.CompareAndSwap(0, 1) && (l.queued.Load() == 0 || l.yield())
}

// yield passes the lane on to the queue, and reports false: it's no longer the caller's.
func (l *lane) yield() bool {
	l.release()
	return false
}

// release gives the lane back, or passes it on to calls that queued meanwhile.
func (l *lane) release() {
	l.busy.Store(0)
	if l.queued.Load() != 0 {
		l.resume()
	}
}

// resume has the queue run, if no call owns the lane.
func (l *lane) resume() {
	if l.busy.CompareAndSwap(0, 1) {
		go l.drain()
	}
}

// enqueue runs f after everything that was issued before.
func (l *lane) enqueue(f func()) {
	l.mu.Lock()
	l.queue = append(l.queue, f)
	l.queued.Add(1)
	l.mu.Unlock()
	l.resume()
}

// drain runs the queue; the caller has acquired the lane for it. If one of its functions ends the goroutine another
// goes on.
func (l *lane) drain() {
	inside := false
	defer func() {
		if inside {
			l.queued.Add(-1)
			go l.drain()
		}
	}()
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.queue = nil
			l.mu.Unlock()
			l.release()
			return
		}
		f := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.mu.Unlock()
		inside = true
		f()
		inside = false
		l.queued.Add(-1)
	}
}
