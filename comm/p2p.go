package comm

import (
	"context"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// Send sends t to rank dst. It returns when t may be reused, which may be before or
// after the message was received.
//
// Options: Tag, Async, Timeout.
func (c *Comm) Send(ctx context.Context, t *tensor.Tensor, dst int, opts ...Option) error {
	o := c.transfer(ctx, backend.Send, opts)
	o.In, o.Peer = t, dst
	return c.pointToPoint(o)
}

// Recv receives a message from rank src, or from any with AnySource, into t. The message must
// have t's dtype and number of elements: *MismatchError otherwise.
//
// Options: Tag, From, Async, Timeout.
func (c *Comm) Recv(ctx context.Context, t *tensor.Tensor, src int, opts ...Option) error {
	o := c.transfer(ctx, backend.Recv, opts)
	o.Out, o.Peer = t, src
	return c.pointToPoint(o)
}

func (c *Comm) transfer(ctx context.Context, kind Kind, opts []Option) *call {
	o := c.transfers.Get().(*call)
	*o = call{}
	c.fill(o, ctx, kind, opts)
	return o
}

// pointToPoint posts a transfer on the caller's goroutine, so that messages
// match in the order in which they were issued, and completes it here or behind.
func (c *Comm) pointToPoint(o *call) error {
	if err := c.validate(o); err != nil {
		return err
	}
	if o.onDevice {
		return c.transferOn(o.Kind.String(), o.work, o.Ctx, o)
	}
	if !c.gate.enter() {
		return &FinalizedError{Where: c.at(o.Kind.String())}
	}
	inside := true
	defer c.recoverAndAbort(o, &inside)
	o.record = c.rec.Issue(&o.Op, o.work != nil, false)
	if o.work == nil {
		err := c.post(o)
		if err == nil {
			err = c.await(o)
		}
		inside = false
		c.gate.exit()
		*o = call{}
		c.transfers.Put(o)
		return rethrow(err)
	}
	w := o.work
	if err := w.issue(); err != nil {
		inside = false
		c.gate.exit()
		err = c.invalid(o.Kind.String(), "%v", err)
		c.rec.Drop(o.record, err)
		return err
	}
	w.start()
	err := c.post(o)
	inside = false
	if err != nil {
		c.gate.exit()
		w.finish(err)
		return err
	}
	go c.attempt(o.Kind.String(), o, func() error { return c.await(o) }, func(err error) {
		c.gate.exit()
		w.finish(err)
	})
	return nil
}

// post begins a message. If it fails, the message has ended.
func (c *Comm) post(o *call) error {
	err := c.submit(o)
	if err != nil {
		return c.finish(o, err)
	}
	return nil
}

// await completes a message.
func (c *Comm) await(o *call) error { return c.finish(o, c.b.Wait(&o.Op)) }
