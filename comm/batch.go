package comm

import (
	"context"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// Batch collects operations that are issued together. They are sends and receives, whose order among the ranks cannot
// deadlock then, or collectives. These are one group of the backend's library where it has groups, and run one behind
// the other elsewhere. A batch is used by one goroutine.
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

// Add adds an operation of any kind that is given as a value, as to [Comm.Submit]. Its context is Issue's, and so is
// its time if it has none. No collective of a batch may use what another one of it writes: a library with groups
// carries them out at the same time, and such a batch is refused.
func (b *Batch) Add(op *Op) {
	o := new(call)
	b.c.fill(o, context.Background(), op.Kind, nil)
	if op.Kind.Valid() {
		b.c.adopt(o, op, nil)
	}
	b.calls = append(b.calls, o)
}

// Len returns the number of operations in the batch.
func (b *Batch) Len() int { return len(b.calls) }

// Check returns the error with which Issue would refuse the batch, if there is one. Ranks that wait for its collectives
// are told then, as by Issue.
func (b *Batch) Check(ctx context.Context, opts ...Option) error {
	_, err := b.check(ctx, opts)
	return err
}

// check is Check; it also returns what is common to all operations.
func (b *Batch) check(ctx context.Context, opts []Option) (all *call, err error) {
	c := b.c
	all = new(call)
	c.fill(all, ctx, backend.Send, opts)
	if len(b.calls) == 0 {
		return all, c.invalid("batch", "the batch is empty")
	}
	if err = b.invalid(all); err == nil || !b.calls[0].Kind.Valid() || b.calls[0].Kind.PointToPoint() {
		return all, err
	}
	return all, c.placement.Load().refuse(b.calls[0], err)
}

// invalid returns what is wrong with the batch.
func (b *Batch) invalid(all *call) error {
	c := b.c
	if all.nilOption != 0 {
		return c.noOption("batch", all.nilOption)
	}
	if all.Tag != 0 || all.from != nil || all.hasInto {
		return c.invalid("batch", "Issue takes Async and Timeout; Tag and From belong to a transfer")
	}
	messages := b.calls[0].Kind.PointToPoint()
	for _, o := range b.calls {
		switch {
		case !o.Kind.Valid():
			return c.invalid("batch", "there is no operation %d", o.Kind)
		case o.Kind.PointToPoint() != messages:
			return c.invalid("batch", "%v beside %v: a batch is of messages or of collectives", b.calls[0].Kind, o.Kind)
		case o.work != nil:
			return c.invalid("batch", "Async belongs to Issue, not to a transfer of the batch")
		}
		if o.Ctx = all.Ctx; o.value == nil || o.value.Timeout == 0 {
			o.Timeout = all.Timeout
		}
		if err := c.validate(c.placement.Load(), o); err != nil {
			return err
		}
		o.valid = true
	}
	var at *call // says where all of them are
	for _, o := range b.calls {
		switch {
		case o.First() == nil:
		case at == nil:
			at = o
		case o.onDevice != at.onDevice:
			return c.invalid("batch", "%s", apartFrom(at.First(), o.First()))
		}
	}
	for _, o := range b.calls {
		o.onDevice = at == nil && o.onDevice || at != nil && at.onDevice
	}
	return nil
}

// Issue begins all operations at once and waits for them, collectives up to the first that fails; the batch is empty
// afterwards. Nothing is begun, and the batch stays as it is, if any of them is invalid. Options: Async, Timeout.
func (b *Batch) Issue(ctx context.Context, opts ...Option) error {
	all, err := b.check(ctx, opts)
	if err != nil {
		return err
	}
	c, calls := b.c, b.calls
	b.calls = nil
	if calls[0].Kind.PointToPoint() {
		calls[0].round = &round{c: c, op: "batch", calls: calls, ctx: all.Ctx, stream: calls[0].Stream, work: all.work}
		return c.placement.Load().carryOut(calls[0])
	}
	return c.runBatch(all.work, calls)
}

// runBatch runs collectives that are valid, or issues them with w for all.
func (c *Comm) runBatch(w *Work, calls []*call) error {
	x := c.placement.Load()
	if w == nil && !(x.library() != nil && calls[0].onDevice) { // which takes all in one call
		for _, o := range calls {
			o.owner = c.lane.tryAcquire()
			if err := c.collective(o.Ctx, o.Kind, o, nil); err != nil {
				return err
			}
		}
		return nil
	}
	for i, o := range calls {
		if o.work = w; i > 0 {
			calls[i-1].next = o
		}
	}
	return x.carryOut(calls[0])
}
