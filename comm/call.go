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
	valid    bool     // validated before, with its batch
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

// collective is the path of every collective: the call is validated, carried out by the executor, and finished there.
func (c *Comm) collective(o *call) error {
	held := o.owner
	defer c.recoverAndAbort(o, &held)
	x := c.placement.Load()
	if !o.valid && !c.plain(o) {
		if err := c.validate(o); err != nil {
			return x.refuse(c.detach(o, &held), err)
		}
	}
	switch {
	case held && x.callerRuns(o):
	case held && x.inline(o):
		held = false
		return nil
	default:
		return x.run(c.detach(o, &held))
	}
	err := c.execute(o)
	held = false
	c.releaseCall()
	if err != nil {
		rethrow(err)
	}
	return err
}

// detach gives back the lane, and with it the communicator's own call, if the call holds it.
func (c *Comm) detach(o *call, held *bool) *call {
	if *held {
		moved := *o
		moved.owner = false
		o, *held = &moved, false
		c.releaseCall()
	}
	return o
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
