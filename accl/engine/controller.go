package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Controller is a caller of an engine. Its calls begin in the order of Start, each when the one before is done, or
// waits for another rank's part of a rendezvous between two ranks. Calls of different controllers overlap.
type Controller struct {
	engine *Engine

	mu      sync.Mutex
	queue   []*Call
	current *Call // nil while the queue is empty
	running bool
}

// Controller returns a new controller.
func (e *Engine) Controller() *Controller { return &Controller{engine: e} }

// maxParked is how many calls wait in the retry queue.
const maxParked = 512

// Start queues a call. When it returns, a reset is done, and so may be a small call that waits for no other rank.
func (x *Controller) Start(words abi.Call) *Call {
	e := x.engine
	c := &Call{Call: words, words: words, engine: e, controller: x,
		done: make(chan struct{}), dropped: make(chan struct{})}
	if words.Scenario == abi.Config && abi.ConfigFunction(words.Function) == abi.Reset {
		e.reset()
		c.finish(time.Now())
		return c
	}
	e.mu.Lock()
	e.calls[c] = struct{}{}
	if e.closed {
		c.Drop()
	}
	e.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.running:
		x.queue = append(x.queue, c)
	case c.runsInline():
		x.running, x.current = true, c
		x.mu.Unlock()
		c.run()
		x.mu.Lock()
		x.resume()
	default:
		x.queue = append(x.queue, c)
		x.resume()
	}
	return c
}

// Run is Start by a caller that waits: its goroutine carries the call out, if no other call is before it. It waits for
// the closing of a channel by wait; when that returns an error, the call is dropped. The call is done when Run returns.
func (x *Controller) Run(words abi.Call, wait func(<-chan struct{}) error) *Call {
	x.mu.Lock()
	if x.running || words.Scenario == abi.Config {
		x.mu.Unlock()
		c := x.Start(words)
		if wait(c.done) != nil {
			c.Drop()
			<-c.done
		}
		return c
	}
	e := x.engine
	c := &Call{Call: words, words: words, engine: e, controller: x, wait: wait, done: make(chan struct{}),
		dropped: make(chan struct{})}
	x.running, x.current = true, c
	x.mu.Unlock()
	e.mu.Lock()
	e.calls[c] = struct{}{}
	if e.closed {
		c.Drop()
	}
	e.mu.Unlock()
	c.run()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current == c {
		x.resume()
	} else {
		e.parked.Add(-1)
	}
	return c
}

// resume has a goroutine carry out what is queued, if there is anything. The lock is held.
func (x *Controller) resume() {
	if x.running = len(x.queue) > 0; x.running {
		go x.run()
	}
}

// inlineCount is how many elements a call may have that its caller carries out: waking another goroutine would take
// longer.
const inlineCount = 4096

// runsInline reports whether a call is small and waits for no other rank.
func (c *Call) runsInline() bool {
	if c.Count > inlineCount || c.Stream&abi.Op0Stream != 0 {
		return false
	}
	switch c.Scenario {
	case abi.Nop, abi.Copy, abi.Combine:
		return true
	case abi.Send:
		const widest = 8
		e := c.engine
		return c.Stream != 0 || e.cfg.Protocol != abi.RDMA || widest*c.Count <= e.maxEager.Load()
	}
	return false
}

// withdraw takes a call out of the queue; false if it isn't there.
func (x *Controller) withdraw(c *Call) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.Index(x.queue, c)
	if i >= 0 {
		x.queue = slices.Delete(x.queue, i, i+1)
	}
	return i >= 0
}

// run carries out calls until none is left, or another goroutine has taken over from a call that is parked.
func (x *Controller) run() {
	for {
		x.mu.Lock()
		if len(x.queue) == 0 {
			x.running = false
			x.mu.Unlock()
			return
		}
		c := x.queue[0]
		x.queue[0] = nil
		x.queue = x.queue[1:]
		x.current = c
		x.mu.Unlock()
		c.run()
		x.mu.Lock()
		over := x.current != c
		x.mu.Unlock()
		if over {
			x.engine.parked.Add(-1)
			return
		}
	}
}

// park puts a call that is about to wait into the retry queue: the controller's next call may begin.
func (x *Controller) park(c *Call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current != c {
		return
	}
	if x.engine.parked.Add(1) > maxParked {
		x.engine.parked.Add(-1)
		return
	}
	x.current = nil
	x.resume()
}
