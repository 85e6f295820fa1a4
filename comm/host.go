package comm

import (
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// hostExecutor runs operations on the goroutine of their caller. Asynchronous collectives, and those that find the lane
// taken, run in its queue; asynchronous messages are completed by a goroutine of their own.
type hostExecutor struct{ c *Comm }

func (h hostExecutor) carryOut(o *call) error {
	switch {
	case o.owner && o.work == nil:
	case o.round != nil:
		return h.runRound(o.round)
	case o.onWindow != nil:
		return rethrow(o.onWindow.do(o.Ctx, o.onWindow.w.w))
	default:
		return h.runQueued(h.c.detach(o))
	}
	c, held := h.c, true
	defer func() {
		if held {
			c.abortCall(o, recover())
		}
	}()
	err := c.execute(o)
	held = false
	c.releaseCall()
	if err != nil {
		rethrow(err)
	}
	return err
}

// runQueued queues a collective, with those behind it in its batch, behind all that were issued before.
func (h hostExecutor) runQueued(o *call) error {
	c := h.c
	w, wait := o.work, o.work == nil
	if wait {
		w = new(Work)
	}
	for x := o; x != nil; x = x.next {
		x.record = c.rec.Issue(&x.Op, !wait, true)
	}
	if err := w.issue(); err != nil {
		err = c.placement.Load().refuse(o, c.invalid(o.Kind.String(), "%v", err))
		for ; o != nil; o = o.next {
			c.rec.Drop(o.record, err)
		}
		return err
	}
	for x := o; x != nil; x = x.next {
		c.lane.enqueue(&queuedCall{c: c, o: x, w: w})
	}
	if wait {
		return c.awaitQueued(o, w)
	}
	return nil
}

// queuedCall is a call in the lane's queue.
type queuedCall struct {
	c *Comm
	o *call
	w *Work
}

func (q *queuedCall) run() {
	c, o, w := q.c, q.o, q.w
	w.start()
	c.rec.Start(o.record, &o.Op)
	c.attempt(o.Kind.String(), o, func() error { return c.executeQueued(o) }, w.note)
}

func (q *queuedCall) ended() {
	if q.o.next == nil {
		q.w.finish()
	}
}

// awaitQueued waits for a synchronous collective that had to queue. Its turn comes when
// those before it are done, so that giving it up means giving up the communicator.
func (c *Comm) awaitQueued(o *call, w *Work) error {
	p := fabric.PollerOf(o.Ctx)
	if p == nil {
		<-w.done
		return w.err
	}
	tick := time.NewTicker(fabric.PollInterval)
	defer tick.Stop()
	polling := false
	defer func() {
		if polling {
			value := recover()
			c.panicked(o.Kind.String(), nil, value)
			<-w.done
			if value != nil {
				panic(value)
			}
		}
	}()
	for {
		select {
		case <-w.done:
			return w.err
		case <-tick.C:
			polling = true
			err := p.Poll()
			polling = false
			if err != nil {
				c.Abort(err)
				<-w.done
				return w.err
			}
		}
	}
}

// runRound posts messages on the caller's goroutine, so that they match in the order in which they were issued, and
// completes them here or behind.
func (h hostExecutor) runRound(r *round) error {
	c := h.c
	if !c.gate.enter() {
		return &FinalizedError{Where: c.at(r.op)}
	}
	held := true
	defer func() {
		if held {
			c.abortCall(r, recover())
		}
	}()
	w := r.work
	if w != nil {
		if err := w.issue(); err != nil {
			held = false
			c.gate.exit()
			return c.invalid(r.op, "%v", err)
		}
		w.start()
	}
	err := r.post(w != nil)
	if w == nil || err != nil && r.posted == 0 { // none is under way
		err = r.complete(err)
		held = false
		c.gate.exit()
		if w != nil {
			w.complete(err)
		}
		return rethrow(err)
	}
	held = false
	go c.attempt(r.op, r, func() error { return r.complete(err) }, func(err error) {
		r.abandon()
		c.gate.exit()
		w.complete(err)
	})
	return nil
}
