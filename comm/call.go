package comm

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// call is an operation on its way from a method to the backend.
type call struct {
	backend.Op

	owner    bool     // holds the lane
	rest     bool     // has more than what every call sets: options, hints, lists
	onDevice bool     // its tensors are on the communicator's device
	record   uint64   // for the recorder; 0: it isn't recorded yet
	hooks    *hookSet // whose pre-hooks have seen it; nil if there are none
	work     *Work
	value    *Op // what Submit was given: gets the results

	into      *tensor.Tensor
	hasInto   bool
	from      *int
	id        uint64 // for hooks
	nilOption int    // which of its options is nil, from 1; 0: none
	next      *call  // the one behind it in a batch that is issued as one, with the same Work; nil: it's the last
	running   running
	originals *originals // on a device, where the operation has views of the memory instead of the tensors
}

// begin makes a call for a collective: the communicator's own, if the lane is
// free, so that nothing is allocated.
func (c *Comm) begin(ctx context.Context, kind Kind, opts []Option) *call {
	o := &c.own
	if ctx == nil {
		ctx = context.Background()
	}
	if !c.lane.tryAcquire() {
		o = new(call)
	}
	o.owner = o == &c.own
	if o.Kind != kind { // else the method sets them again
		o.Kind, o.Root, o.Reduce = kind, 0, Reduction{}
	}
	if len(opts) > 0 || listed[kind] || c.hints.Load() != nil || !o.owner {
		o.rest = true
		c.fill(o, ctx, kind, opts)
		return o
	}
	o.Ctx, o.Timeout = ctx, time.Duration(c.timeout.Load())
	return o
}

// listed tells the collectives that have lists.
var listed = func() (all [256]bool) {
	for _, k := range backend.Collectives() {
		row := k.Operation()
		all[k] = row.In == backend.List || row.Out == backend.List || row.Splits()
	}
	return all
}()

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
	if !c.plain(o) {
		if err := c.validate(o); err != nil {
			c.rec.Refused(err)
			c.refuse(o.Kind.String(), held, err)
			if held {
				held = false
				c.releaseCall()
			}
			return err
		}
	}
	if o.work == nil && held {
		err := c.execute(o)
		held = false
		c.releaseCall()
		if err != nil {
			rethrow(err)
		}
		return err
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

// releaseCall ends the use of the communicator's own call, which keeps no tensor alive, and of the lane.
func (c *Comm) releaseCall() {
	if o := &c.own; o.rest || o.Reduce.FactorTensor != nil {
		*o = call{}
	} else {
		o.Ctx, o.In, o.Out, o.Seq, o.Algorithm, o.record = nil, nil, nil, 0, "", 0
		if o.value != nil {
			o.value, o.Site, o.Stream = nil, 0, nil
		}
	}
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
		c.attempt(o.Kind.String(), o, func() error { return c.execute(o) }, func(err error) { w.ended(o, err) })
	})
}
