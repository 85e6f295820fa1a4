package comm

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// hostExecutor runs operations on the goroutine of their caller. Asynchronous collectives, and those that find the lane
// taken, run in its queue; asynchronous messages are completed by a goroutine of their own.
type hostExecutor struct{ c *Comm }

func (h hostExecutor) callerRuns(o *call) bool { return o.work == nil }

// run queues a call behind all that were issued before.
func (h hostExecutor) run(o *call) error {
	c := h.c
	w, wait := o.work, o.work == nil
	if wait {
		w = new(Work)
	}
	for x := o; x != nil; x = x.next {
		x.record = c.rec.Issue(&x.Op, !wait, true)
	}
	if err := w.issue(); err != nil {
		err = c.invalid(o.Kind.String(), "%v", err)
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
	c.attempt(o.Kind.String(), o, func() error { return c.execute(o) }, w.note)
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

func (h hostExecutor) refuse(o *call, why error) error {
	h.c.rec.Refused(why)
	return h.c.refuse(o.Kind.String(), why)
}

func (h hostExecutor) inline(*call) bool { return false }

func (h hostExecutor) joins(*call) bool { return false }

// messages posts messages on the caller's goroutine, so that they match in the order in which they were issued, and
// completes them here or behind.
func (h hostExecutor) messages(r *round) error {
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

// window isn't called: operations on the host's windows run on their caller's goroutine.
func (h hostExecutor) window(w *Window, o *call, x windowOp) error {
	return h.c.invalid(x.kind.String(), "%s", hostBlocks)
}

func (h hostExecutor) work() *deviceWork                             { return nil }
func (h hostExecutor) view(t *tensor.Tensor) (*tensor.Tensor, error) { return t.EngineView() }
func (h hostExecutor) quiesce(context.Context) error                 { return nil }
func (h hostExecutor) idle() bool                                    { return true }
func (h hostExecutor) exclude() (resume func())                      { return func() {} }
func (h hostExecutor) close()                                        {}
