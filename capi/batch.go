//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"slices"

	"github.com/chorus-comms/chorus/comm"
)

// batch is several operations that are submitted as one.
type batch struct {
	m           *communicator
	ctx         context.Context
	calls       []*call
	transfers   *comm.Batch
	collectives *comm.Batch
	opts        []comm.Option
}

func newBatch(h C.chorus_comm, ops *C.chorus_op, n C.int32_t, ns C.int64_t, ctx context.Context) (*batch, error) {
	m, err := find(h)
	if err != nil {
		return nil, err
	}
	if n <= 0 || ops == nil || n > C.CHORUS_MAX_BATCH {
		return nil, refused("a batch of %d operations at %p; there can be %d at most", n, ops, C.CHORUS_MAX_BATCH)
	}
	scope, err := m.scope()
	if err != nil {
		return nil, err
	}
	b := &batch{m: m, ctx: scope(ctx), transfers: m.Batch(), collectives: m.Batch()}
	if ns != 0 {
		b.opts = append(b.opts, comm.Timeout(timeout(ns)))
	}
	list := slice(ops, n)
	for i := range list {
		k := new(call)
		if m.Stream() == nil {
			err = k.fill(m, &list[i], ctx)
		} else {
			err = k.fillOn(m, &list[i], ctx, nil)
		}
		if err != nil {
			return nil, err
		}
		k.op.From = -1
		if k.op.Kind.PointToPoint() {
			b.transfers.Add(&k.op)
		} else {
			b.collectives.Add(&k.op)
		}
		b.calls = append(b.calls, k)
	}
	return b, nil
}

// issue begins what there is of messages and of collectives, each with a Work that work gives, nil for none. Nothing
// begins if an operation is invalid.
func (b *batch) issue(work func() *comm.Work) error {
	if b.transfers.Len() > 0 && b.collectives.Len() > 0 {
		if err := b.collectives.Check(b.ctx, b.opts...); err != nil {
			return err
		}
	}
	for _, part := range [2]*comm.Batch{b.transfers, b.collectives} {
		if part.Len() == 0 {
			continue
		}
		opts := b.opts
		if w := work(); w != nil {
			opts = append(slices.Clone(opts), comm.Async(w))
		}
		if err := part.Issue(b.ctx, opts...); err != nil {
			return err
		}
	}
	return nil
}

//export goSubmitBatch
func goSubmitBatch(h C.chorus_comm, ops *C.chorus_op, n C.int32_t, ns C.int64_t,
	checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	var asker call // only for its context
	b, err := newBatch(h, ops, n, ns, asker.context(checked))
	if err == nil {
		err = asker.interrupted(b.issue(func() *comm.Work { return nil }), checked)
	}
	if err != nil {
		return fail(err)
	}
	for i, k := range b.calls {
		if o := &slice(ops, n)[i]; b.m.Stream() == nil {
			k.results(o)
		} else {
			o.source, o.seq = -1, 0
		}
	}
	return C.CHORUS_OK
}

//export goIssueBatch
func goIssueBatch(h C.chorus_comm, ops *C.chorus_op, n C.int32_t, ns C.int64_t, out *C.chorus_work,
	mayWait C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	*out = 0
	w := new(work)
	b, err := newBatch(h, ops, n, ns, &w.canceled)
	if err != nil {
		return fail(err)
	}
	if b.m.Stream() != nil && mayWait == 0 {
		for _, k := range b.calls {
			if b.m.waits(k) {
				return C.CHORUS_PENDING
			}
		}
	}
	w.m, w.ops = b.m, b.calls
	if err := b.issue(func() *comm.Work {
		issued := new(comm.Work)
		w.parts = append(w.parts, issued)
		return issued
	}); err != nil {
		if len(w.parts) < 2 {
			return fail(err)
		}
		w.parts[1] = failed(err) // the messages are under way, and need their work
	}
	return fail(giveWork(w, out))
}

// failed is a part that has ended.
func failed(err error) part {
	e := &eventual{done: make(chan struct{}), err: err}
	close(e.done)
	return e
}
