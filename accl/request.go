package accl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Request is an asynchronous call.
type Request struct {
	call   *call
	handle Handle        // nil until it has begun
	drop   chan struct{} // closed by Drop
	once   sync.Once
	done   chan struct{}
	err    error
	cycles uint64
}

// CallError is what an engine has returned for a call.
type CallError struct {
	Scenario abi.Scenario
	Status   abi.Status
}

func (e *CallError) Error() string { return fmt.Sprintf("accl: %v: %v", e.Scenario, e.Status.Error()) }
func (e *CallError) Unwrap() error { return e.Status }

// Done is closed when the call is done, its results with the host.
func (r *Request) Done() <-chan struct{} { return r.done }

// Test reports whether the call is done.
func (r *Request) Test() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Wait waits for the call. If its context ends first, the call is dropped, and Wait returns the context's error when
// nothing touches the buffers any more.
func (r *Request) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	r.Drop()
	<-r.done
	if r.err == nil {
		return nil // it was faster
	}
	return fmt.Errorf("accl: %v: %w", r.call.words.Scenario, context.Cause(ctx))
}

// Drop ends the call. It is done soon, with NotReady.
func (r *Request) Drop() { r.once.Do(func() { close(r.drop) }) }

// Duration is how long the engine was at it; 0 before it's done.
func (r *Request) Duration() time.Duration {
	if !r.Test() {
		return 0
	}
	return time.Duration(r.cycles * abi.CycleNS)
}

// start makes a call whose words are complete.
func (d *Driver) start(ctx context.Context, c *call) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	queue := c.queue
	if c.comm != nil {
		var err error
		if c.words.Comm, err = c.comm.begin(); err != nil {
			return err
		}
		queue = c.comm.queue
	}
	if !c.from {
		for _, b := range c.ins {
			if err := b.SyncToDevice(); err != nil {
				c.comm.end()
				return err
			}
		}
	}
	if c.async == nil {
		defer c.comm.end()
		return c.carry(ctx, queue)
	}
	r := &Request{call: c, drop: make(chan struct{}), done: make(chan struct{})}
	if len(c.after) == 0 { // in the order of the calls
		h, err := queue.Start(c.words)
		if err != nil {
			c.comm.end()
			return err
		}
		r.handle = h
	}
	*c.async = r
	go r.run(queue)
	return nil
}

// carry sees a synchronous call to its end.
func (c *call) carry(ctx context.Context, queue Queue) (err error) {
	var late error
	wait := func(done <-chan struct{}) error {
		if c.wait != nil {
			err := c.wait(done)
			late = cmp.Or(late, err)
			return err
		}
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			late = context.Cause(ctx)
			return late
		}
	}
	var h Handle
	for _, before := range c.after {
		if wait(before.done) != nil {
			return c.late(late)
		}
	}
	if q, ok := queue.(Waiting); ok && c.wait != nil {
		h, err = q.Run(c.words, wait)
	} else if h, err = queue.Start(c.words); err == nil && wait(h.Done()) != nil {
		h.Drop()
		<-h.Done()
	}
	if err != nil {
		return err
	}
	if _, err = c.result(h); err != nil && late != nil {
		return c.late(late)
	}
	return err // none if it was faster
}

// late is the error of a call whose caller waits no longer.
func (c *call) late(cause error) error { return fmt.Errorf("accl: %v: %w", c.words.Scenario, cause) }

// result takes what came out of a call that is done.
func (c *call) result(h Handle) (cycles uint64, err error) {
	status, cycles, err := h.Result()
	if err == nil && status != 0 {
		err = &CallError{c.words.Scenario, status}
	}
	if err == nil && !c.to {
		for _, b := range c.outs {
			err = errors.Join(err, b.SyncFromDevice())
		}
	}
	return cycles, err
}

// run sees the call to its end.
func (r *Request) run(queue Queue) {
	defer func() {
		r.call.comm.end()
		close(r.done)
	}()
	for _, before := range r.call.after {
		select {
		case <-before.done:
		case <-r.drop:
			r.err = &CallError{r.call.words.Scenario, abi.NotReady}
			return
		}
	}
	if r.handle == nil {
		if r.handle, r.err = queue.Start(r.call.words); r.err != nil {
			return
		}
	}
	select {
	case <-r.handle.Done():
	case <-r.drop:
		r.handle.Drop()
		<-r.handle.Done()
	}
	r.cycles, r.err = r.call.result(r.handle)
}

// nothing is a call of no elements: it's done.
func (d *Driver) nothing(c *call) error {
	if c.async != nil {
		r := &Request{call: c, drop: make(chan struct{}), done: make(chan struct{})}
		close(r.done)
		*c.async = r
	}
	return nil
}
