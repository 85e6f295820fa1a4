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
	r := c.message(ctx, backend.Send, opts)
	r.only.In, r.only.Peer = t, dst
	return c.pointToPoint(r)
}

// Recv receives a message from rank src, or from any with AnySource, into t. The message must
// have t's dtype and number of elements: *MismatchError otherwise.
//
// Options: Tag, From, Async, Timeout.
func (c *Comm) Recv(ctx context.Context, t *tensor.Tensor, src int, opts ...Option) error {
	r := c.message(ctx, backend.Recv, opts)
	r.only.Out, r.only.Peer = t, src
	return c.pointToPoint(r)
}

// message makes a round of one message.
func (c *Comm) message(ctx context.Context, kind Kind, opts []Option) *round {
	r := c.rounds.Get().(*round)
	c.fill(r.onlyCall(c), ctx, kind, opts)
	return r
}

// pointToPoint is the path of a message: it's validated, and carried out by the executor.
func (c *Comm) pointToPoint(r *round) error {
	o := &r.only
	x := c.placement.Load()
	if err := c.validate(x, o); err != nil {
		return err
	}
	r.op, r.ctx, r.stream, r.work = o.Kind.String(), o.Ctx, o.Stream, o.work
	err := x.carryOut(o)
	if r.work == nil && !o.onDevice { // it's over
		*r = round{}
		c.rounds.Put(r)
	}
	return err
}
