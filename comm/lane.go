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
	queue  []turn
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
		go l.drain(nil)
	}
}

// turn is what waits in the queue. The lane is free when ended is called, unless others wait: so what is issued next
// doesn't queue.
type turn interface {
	run()   // in its turn; it may end the goroutine
	ended() // once run has ended and the lane is given back or passed on
}

// enqueue runs t after everything that was issued before.
func (l *lane) enqueue(t turn) {
	l.mu.Lock()
	l.queue = append(l.queue, t)
	l.queued.Add(1)
	l.mu.Unlock()
	l.resume()
}

// after runs f after everything that was issued before. done is closed when f has ended.
func (l *lane) after(f func()) (done <-chan struct{}) {
	t := funcTurn{f, make(chan struct{})}
	l.enqueue(t)
	return t.done
}

type funcTurn struct {
	f    func()
	done chan struct{}
}

func (t funcTurn) run()   { t.f() }
func (t funcTurn) ended() { close(t.done) }

// drain runs the queue; the caller has acquired the lane for it. last, if it isn't nil, has run. If a turn ends the
// goroutine another goes on.
func (l *lane) drain(last turn) {
	var now turn
	defer func() {
		if now != nil {
			go l.drain(now)
		}
	}()
	for {
		if now = l.next(last); now == nil {
			return
		}
		now.run()
		last, now = now, nil
	}
}

// next ends the last turn and takes the next one from the queue. If there is none it gives the lane back.
func (l *lane) next(last turn) (t turn) {
	l.mu.Lock()
	if last != nil {
		l.queued.Add(-1)
	}
	if len(l.queue) == 0 {
		l.queue = nil
	} else {
		t, l.queue[0] = l.queue[0], nil
		l.queue = l.queue[1:]
	}
	l.mu.Unlock()
	if t == nil {
		l.release()
	}
	if last != nil {
		last.ended()
	}
	return t
}
