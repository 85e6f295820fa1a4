package comm

import (
	"context"
	"errors"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/tensor"
)

// call is an operation on its way from a method to the backend.
type call struct {
	backend.Op
	work      *Work
	into      *tensor.Tensor
	hasInto   bool
	from      *int
	value     *Op    // what Submit was given: gets the results
	owner     bool   // holds the lane
	id        uint64 // for hooks
	onDevice  bool   // its tensors are on the communicator's device
	plain     bool   // made by fast, which keeps the fields that its next call sets or needs again
	record    uint64 // for the recorder
	nilOption int    // which of its options is nil, from 1; 0: none
	next      *call  // the one behind it in a batch that is issued as one, with the same Work; nil: it's the last
	running   running
	originals *originals // on a device, where the operation has views of the memory instead of the tensors
}

// begin makes a call for a collective: the communicator's own, if the lane is
// free, so that nothing is allocated.
func (c *Comm) begin(ctx context.Context, kind Kind, opts []Option) *call {
	o := &c.own
	if c.lane.tryAcquire() {
		if o.plain {
			*o = call{}
		}
		o.owner = true
	} else {
		o = new(call)
	}
	c.fill(o, ctx, kind, opts)
	return o
}

func (c *Comm) fill(o *call, ctx context.Context, kind Kind, opts []Option) {
	o.Kind, o.Ctx = kind, ctx
	if ctx == nil {
		o.Ctx = context.Background()
	}
	o.Timeout = time.Duration(c.timeout.Load())
	if h := c.hints.Load(); h != nil {
		o.Hints = *h
	}
	for i, f := range opts {
		if f == nil {
			o.nilOption = i + 1
			continue
		}
		f(o)
	}
}

// collective validates a call and runs it, or issues it if it's asynchronous.
func (c *Comm) collective(o *call) error {
	if c.dev() != nil {
		return c.collectiveOn(o)
	}
	held := o.owner
	defer c.recoverAndAbort(o, &held)
	if err := c.validate(o); err != nil {
		c.rec.Refused(err)
		c.refuse(o.Kind.String(), held, err)
		if held {
			held = false
			c.releaseCall()
		}
		return err
	}
	if o.work == nil && held {
		return c.runNow(o, &held)
	}
	if held { // asynchronous: the lane's own call must stay free for the next
		moved := *o
		moved.owner = false
		held = false
		c.releaseCall()
		o = &moved
	}
	return c.issue(o)
}

// runNow runs a synchronous collective whose call has the lane, and releases the lane.
func (c *Comm) runNow(o *call, held *bool) error {
	// It's recorded while this rank's announcement is on its way to the others, unless a hook is to see it first.
	var err error
	begin := c.hooks.Load() == nil
	if begin {
		err = c.b.Submit(&o.Op)
	}
	o.record = c.rec.Begin(&o.Op, false)
	if !begin {
		err = c.run(o)
	} else {
		if err == nil {
			err = c.b.Wait(&o.Op)
		}
		err = c.finish(o, err)
	}
	*held = false
	c.releaseCall()
	if err != nil {
		c.fatal(err)
		rethrow(err)
	}
	return err
}

// refuse reports to the backend a collective that doesn't reach it, when it's the collective's
// turn, since the others may be waiting for it. It returns the reason.
func (c *Comm) refuse(op string, owner bool, why error) error {
	b, ok := c.b.(backend.Messenger)
	switch {
	case !ok || errors.Is(why, ErrFinalized):
	case owner:
		b.Refused(op, why)
	default:
		c.lane.enqueue(func() { b.Refused(op, why) })
	}
	return why
}

// releaseCall ends the use of the communicator's own call, which keeps no tensor alive, and of the lane.
func (c *Comm) releaseCall() {
	c.own = call{}
	c.lane.release()
}

// issue queues a call, with those behind it in its batch, behind all that were issued before.
func (c *Comm) issue(o *call) error {
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
		c.queue(x, w)
	}
	if wait {
		return c.awaitQueued(o, w)
	}
	return nil
}

// queue is issue of one call.
func (c *Comm) queue(o *call, w *Work) {
	c.lane.enqueue(func() {
		w.start()
		c.rec.Start(o.record, &o.Op)
		c.attempt(o.Kind.String(), o, func() error { return c.run(o) }, func(err error) {
			w.ended(o, err)
			if err != nil {
				c.fatal(err)
			}
		})
	})
}

// run passes a collective to the backend, between its hooks.
func (c *Comm) run(o *call) error {
	h := c.hooks.Load()
	if h == nil {
		return c.finish(o, c.execute(o))
	}
	return c.finish(o, c.hooked(h, o, func() error { return c.execute(o) }))
}

// execute has the backend do all of a collective.
func (c *Comm) execute(o *call) error {
	if err := c.b.Submit(&o.Op); err != nil {
		return err
	}
	return c.b.Wait(&o.Op)
}

// finish records how a collective has ended.
func (c *Comm) finish(o *call, err error) error {
	c.rec.End(o.record, &o.Op, err)
	if err != nil {
		c.failed(err)
	}
	o.report()
	return err
}

// exclusive runs f in the order of the collectives and waits for it; kind and n are for the recorder.
func (c *Comm) exclusive(kind observe.Special, n int, f func() error) error {
	var err error
	if c.dev() != nil && c.dev().enq != nil { // nothing is enqueued meanwhile
		c.dev().mu.Lock()
		defer c.dev().mu.Unlock()
	}
	record := c.rec.BeginSpecial(kind, n)
	done := make(chan struct{})
	c.lane.enqueue(func() {
		c.attempt(kind.String(), nil, f, func(e error) {
			err = e
			close(done)
		})
	})
	<-done
	c.rec.Drop(record, err)
	c.failed(err)
	return err
}
