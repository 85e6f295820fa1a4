package comm

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// enqueued are operations that the backend has put on a stream by itself, until their end is noticed. Until then they
// are within the gate.
type enqueued struct {
	round
	s     *device.Stream
	on    *deviceWork  // with the event behind them
	began device.Event // in front of them
	since time.Time    // when that was noticed

	timeout time.Duration
	late    func(elapsed time.Duration) // called when that is over
}

// watched are all of a communicator that are under way. One goroutine polls them while there are any.
type watched struct {
	sync.Mutex
	list []*enqueued
}

// Polls come after pauses that grow while nothing ends: a wait for an operation waits for its event, and only the
// flight record, hooks and timeouts depend on the polls.
const (
	pollPause   = time.Millisecond
	longestPoll = 10 * time.Millisecond
)

// enqueueOps has the backend put operations on s, a collective or messages. During a capture they become nodes of the
// graph, whose runs this package doesn't see. The caller holds the lock of the streams.
func (c *Comm) enqueueOps(op string, w *Work, s *device.Stream, calls ...*call) (err error) {
	if !c.gate.enter() {
		return &FinalizedError{Where: c.at(op)}
	}
	e := &enqueued{round: round{c: c, calls: calls, work: w}, s: s}
	if w != nil {
		e.on = w.onDevice()
	} else {
		e.on = c.dev().work(c.b)
	}
	e.timeout = calls[0].Timeout
	e.late = func(elapsed time.Duration) {
		at := c.at(op)
		at.Seq = calls[0].Seq
		c.dev().enq.Overdue(at, &calls[0].Op, elapsed)
	}
	e.on.expire = func(elapsed time.Duration) {
		c.dev().errorReturned.Store(true)
		e.late(elapsed)
	}
	capturing := s.Capturing()
	c.attempt(op, e, func() error {
		ops := make([]*backend.Op, len(calls))
		h := c.hooks.Load()
		for i, o := range calls {
			o.Ctx, o.Stream, ops[i] = context.Background(), s, &o.Op
			if err := o.Replace(func(t *tensor.Tensor) (*tensor.Tensor, error) { return t, t.UsedBy(s) }); err != nil {
				return err
			}
			if !capturing {
				o.record = c.rec.Issue(&o.Op, w != nil, true)
			}
			if h != nil {
				if err := c.before(h, o); err != nil {
					return err
				}
			}
		}
		if !capturing {
			if err := s.Record(&e.began); err != nil {
				return err
			}
		}
		end := func() error { return nil }
		if capturing {
			if end, err = c.dev().replays.begin(c, s, calls); err != nil {
				return err
			}
		}
		if err := c.dev().enq.Enqueue(ops...); err != nil {
			return err
		}
		if err := end(); err != nil {
			return err
		}
		for _, o := range calls {
			c.report(o, nil)
			o.value, o.from = nil, nil // the caller's again
		}
		if capturing && w == nil {
			return nil
		}
		return s.Record(&e.on.event)
	}, func(e error) { err = e })
	if err == nil && !capturing {
		c.watchEnqueued(e)
		return nil
	}
	c.finishEnqueued(e, err)
	return err
}

// watchEnqueued has e watched until its end.
func (c *Comm) watchEnqueued(e *enqueued) {
	d := &c.dev().watched
	d.Lock()
	defer d.Unlock()
	if d.list = append(d.list, e); len(d.list) == 1 {
		go c.pollWatched()
	}
}

// pollWatched polls the operations under way until there are none.
func (c *Comm) pollWatched() {
	d := &c.dev().watched
	var list []*enqueued
	for pause, before := pollPause, 0; ; {
		d.Lock()
		list = append(list[:0], d.list...)
		d.Unlock()
		ended := c.pollEnqueued(list)
		if pause = min(2*pause, longestPoll); len(ended) > 0 || len(list) != before {
			pause = pollPause
		}
		before = len(list) - len(ended)
		d.Lock()
		d.list = slices.DeleteFunc(d.list, func(e *enqueued) bool { return ended[e] })
		idle := len(d.list) == 0
		d.Unlock()
		if idle {
			return
		}
		time.Sleep(pause)
	}
}

// pollEnqueued records those that have ended, and returns them. It queries only the first of each stream that hasn't
// ended: a stream's work ends in its order.
func (c *Comm) pollEnqueued(list []*enqueued) map[*enqueued]bool {
	if unbind, err := c.dev().bind(); err == nil {
		defer unbind()
	}
	broken := c.b.Cause()
	var ended map[*enqueued]bool
	var busy []*device.Stream
	for _, e := range list {
		if broken == nil && slices.ContainsFunc(busy, e.s.Equal) {
			continue
		}
		done, err := c.pollOp(e, broken)
		if !done {
			busy = append(busy, e.s)
			continue
		}
		if ended == nil {
			ended = map[*enqueued]bool{}
		}
		ended[e] = true
		c.finishEnqueued(e, err)
		if err != nil {
			var site uint16
			if len(e.calls) > 0 { // an operation on a window has none
				site = e.calls[0].Site
			}
			c.fatalBehind(err, site)
		}
	}
	return ended
}

// idle reports whether nothing that the backend has put on a stream is under way, noticed by the watch or not yet.
func (c *Comm) idle() bool {
	d := c.dev()
	if d == nil || d.enq == nil {
		return true
	}
	d.watched.Lock()
	defer d.watched.Unlock()
	return !slices.ContainsFunc(d.watched.list, func(e *enqueued) bool {
		done, err := e.on.event.Query()
		return !done && err == nil
	})
}

// pollOp reports whether operations have ended, and with which error: they have ended when the
// communicator is broken.
func (c *Comm) pollOp(e *enqueued, broken error) (done bool, err error) {
	done, err = e.on.event.Query()
	switch {
	case done || err != nil || broken != nil:
		return true, e.on.endError(err)
	case e.since.IsZero():
		if began, _ := e.began.Query(); began {
			e.since = time.Now()
			if e.work != nil {
				e.work.startOn(e.on)
			}
			for _, o := range e.calls {
				c.rec.Start(o.record, &o.Op)
			}
		}
	case time.Since(e.since) > e.timeout:
		e.late(time.Since(e.since))
	}
	return false, nil
}

// finishEnqueued records how operations have ended.
func (c *Comm) finishEnqueued(e *enqueued, err error) {
	_ = e.began.Close()
	if len(e.calls) > 0 {
		c.attempt(e.calls[0].Kind.String(), e, func() error {
			for _, o := range e.calls {
				c.finish(o, err)
			}
			return nil
		}, func(error) {})
	} else if err != nil { // of a window
		c.failed(err)
		c.fatal(err)
	}
	if e.work != nil {
		e.work.completeOn(e.on, err)
	}
	c.gate.exit()
}
