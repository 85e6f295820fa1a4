package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// Batch collects sends and receives that are issued together, so that their
// order among the ranks cannot deadlock. It is used by one goroutine.
//
//	b := c.Batch()
//	b.Send(x, right)
//	b.Recv(y, left)
//	err := b.Issue(ctx)
type Batch struct {
	c     *Comm
	calls []*call
}

// Batch returns an empty batch.
func (c *Comm) Batch() *Batch { return &Batch{c: c} }

// Send adds a send of t to rank dst. Options: Tag; time is Issue's.
func (b *Batch) Send(t *tensor.Tensor, dst int, opts ...Option) {
	o := new(call)
	b.c.fill(o, context.Background(), backend.Send, opts)
	o.In, o.Peer = t, dst
	b.calls = append(b.calls, o)
}

// Recv adds a receive into t from rank src, or AnySource. Options: Tag, From.
func (b *Batch) Recv(t *tensor.Tensor, src int, opts ...Option) {
	o := new(call)
	b.c.fill(o, context.Background(), backend.Recv, opts)
	o.Out, o.Peer = t, src
	b.calls = append(b.calls, o)
}

// Len returns the number of transfers in the batch.
func (b *Batch) Len() int { return len(b.calls) }

// Issue posts all transfers at once and waits for them; the batch is empty afterwards. Nothing
// is posted, and the batch stays as it is, if any of them is invalid. Options: Async, Timeout.
func (b *Batch) Issue(ctx context.Context, opts ...Option) error {
	c := b.c
	var all call
	c.fill(&all, ctx, backend.Send, opts)
	if len(b.calls) == 0 {
		return c.invalid("batch", "the batch is empty")
	}
	if all.noneAt != 0 {
		return c.noOption("batch", all.noneAt)
	}
	if all.Tag != 0 || all.from != nil || all.hasInto {
		return c.invalid("batch", "Issue takes Async and Timeout; Tag and From belong to a transfer")
	}
	for _, o := range b.calls {
		if o.work != nil {
			return c.invalid("batch", "Async belongs to Issue, not to a transfer of the batch")
		}
		o.Ctx, o.Timeout = all.Ctx, all.Timeout
		if err := c.validate(o); err != nil {
			return err
		}
	}
	on := b.calls[0].on
	for _, o := range b.calls {
		if o.on != on {
			return c.invalid("batch", "%s", apartFrom(b.calls[0].First(), o.First()))
		}
	}
	if on {
		calls := b.calls
		b.calls = nil
		return c.transferOn("batch", all.work, all.Ctx, calls...)
	}
	if !c.gate.enter() {
		return &FinalizedError{Where: c.at("batch")}
	}
	if all.work != nil {
		if err := all.work.issue(); err != nil {
			c.gate.exit()
			return c.invalid("batch", "%v", err)
		}
		all.work.start()
	}
	r, held := &round{c: c, calls: b.calls, work: all.work}, true
	b.calls = nil
	defer c.unwind(r, &held)
	err := r.post(all.work != nil)
	if all.work == nil {
		err = single(errors.Join(err, r.await()))
		held = false
		c.gate.exit()
		return thrown(err)
	}
	held = false
	go c.attempt("batch", r, func() error { return single(errors.Join(err, r.await())) }, func(err error) {
		r.abandon()
		c.gate.exit()
		all.work.finish(err)
	})
	return nil
}
