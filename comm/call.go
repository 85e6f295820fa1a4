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
	plain    bool     // is as most are: it holds the lane, and has no Work, options, hints, hooks or lists
	valid    bool     // validated before, with its batch
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
	round     *round // the messages that it's the first of; nil for other operations
	onWindow  *windowCall
	running   running
	originals *originals // on a device, where the operation has views of the memory, or copies, instead of the tensors
	stage     *stage     // on a device whose memory engines of the process can't touch
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
// and carried out by the executor, which finishes it.
func (c *Comm) collective(ctx context.Context, kind Kind, o *call, opts []Option) error {
	held := o.owner
	defer func() {
		if held {
			c.abortCall(o, recover())
		}
	}()
	c.start(o, ctx, kind)
	o.plain = o.owner && len(opts) == 0 && o.work == nil && o.Hints == nil && c.hints.Load() == nil && !listed[kind]
	if !o.plain {
		c.apply(o, opts)
	}
	x := c.placement.Load()
	if !o.valid && !(o.plain && c.passes(x, o)) {
		if err := c.validate(x, o); err != nil {
			held = false
			return x.refuse(c.detach(o), err)
		}
	}
	held = false
	return x.carryOut(o)
}

// fill gives a call what it has besides arguments.
func (c *Comm) fill(o *call, ctx context.Context, kind Kind, opts []Option) {
	c.start(o, ctx, kind)
	c.apply(o, opts)
}

// start gives a call what every call has.
func (c *Comm) start(o *call, ctx context.Context, kind Kind) {
	if o.Kind, o.Ctx = kind, ctx; ctx == nil {
		o.Ctx = context.Background()
	}
	if o.Timeout == 0 {
		o.Timeout = time.Duration(c.timeout.Load())
	}
}

// apply gives a call the communicator's hints and the options of its caller.
func (c *Comm) apply(o *call, opts []Option) {
	if h := c.hints.Load(); h != nil && o.Hints == nil {
		o.Hints = *h
	}
	for i, f := range opts {
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
func (c *Comm) detach(o *call) *call {
	if !o.owner {
		return o
	}
	moved := *o
	moved.owner, moved.plain = false, false
	c.releaseCall()
	return &moved
}

// releaseCall ends the use of the communicator's own call, which keeps no tensor alive, and of the lane.
func (c *Comm) releaseCall() {
	if o := &c.own; !o.plain {
		*o = call{owner: true}
	} else {
		o.Ctx, o.Timeout, o.In, o.Out, o.Root, o.Reduce = nil, 0, nil, nil, 0, Reduction{}
		o.Seq, o.Algorithm, o.record, o.plain = 0, "", 0, false
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
