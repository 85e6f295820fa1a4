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
	rest     bool     // has more than most calls have: options, hints, hooks
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
func (c *Comm) begin() *call {
	if c.lane.tryAcquire() {
		return &c.own
	}
	return new(call)
}

// collective is the path of every collective. The call has its arguments. It gets what else it needs, is validated,
// carried out by the executor, and finished there.
func (c *Comm) collective(ctx context.Context, kind Kind, o *call, opts []Option) error {
	held := o.owner
	defer func() {
		if held {
			c.abortCall(o, recover())
		}
	}()
	if len(opts) == 0 && ctx != nil && o.Timeout == 0 && c.hints.Load() == nil {
		o.Kind, o.Ctx, o.Timeout = kind, ctx, time.Duration(c.timeout.Load()) // all that fill does for most calls
	} else {
		c.fill(o, ctx, kind, opts)
	}
	x := c.placement.Load()
	plain := c.plain(o, x)
	if !plain && !o.valid {
		if err := c.validate(o); err != nil {
			return x.refuse(c.detach(o, &held), err)
		}
	}
	switch {
	case held && (plain || x.callerRuns(o)):
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

// fill gives a call what it has from its caller besides arguments, and from the communicator.
func (c *Comm) fill(o *call, ctx context.Context, kind Kind, opts []Option) {
	o.Kind, o.Ctx = kind, ctx
	if ctx == nil {
		o.Ctx = context.Background()
	}
	if o.Timeout == 0 {
		o.Timeout = time.Duration(c.timeout.Load())
	}
	if h := c.hints.Load(); h != nil && o.Hints == nil {
		o.Hints, o.rest = *h, true
	}
	for i, f := range opts {
		o.rest = true
		if f == nil {
			o.nilOption = i + 1
			continue
		}
		f(o)
	}
	if o.hasInto && o.Out != nil {
		o.Out = o.into
	}
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
	if o := &c.own; o.rest || listed[o.Kind] {
		*o = call{owner: true}
	} else {
		o.Ctx, o.Timeout, o.In, o.Out, o.Root, o.Reduce = nil, 0, nil, nil, 0, Reduction{}
		o.Seq, o.Algorithm, o.record = 0, "", 0
		if o.value != nil {
			o.value, o.Site, o.Stream = nil, 0, nil
		}
	}
	c.lane.release()
}

// listed tells the collectives that have lists.
var listed = func() (all [256]bool) {
	for _, k := range backend.Collectives() {
		row := k.Operation()
		all[k] = row.In == backend.List || row.Out == backend.List || row.Splits()
	}
	return all
}()
