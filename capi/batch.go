//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
)

// batch is several operations that are submitted as one.
type batch struct {
	m         *communicator
	ctx       context.Context
	calls     []*call
	transfers *comm.Batch
	opts      []comm.Option
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
	b := &batch{m: m, ctx: scope(ctx), transfers: m.Batch()}
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
		switch k.op.Kind {
		case backend.Send:
			b.transfers.Send(k.op.In, k.op.Peer, comm.Tag(k.op.Tag), comm.Site(k.op.Site))
		case backend.Recv:
			k.op.From = -1
			b.transfers.Recv(k.op.Out, k.op.Peer, comm.Tag(k.op.Tag), comm.Site(k.op.Site), comm.From(&k.op.From))
		}
		b.calls = append(b.calls, k)
	}
	return b, nil
}

// collectives calls f for each collective, in order, until one fails.
func (b *batch) collectives(f func(*call) error) error {
	for _, k := range b.calls {
		if !k.op.Kind.PointToPoint() {
			if err := f(k); err != nil {
				return err
			}
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
		err = asker.interrupted(b.run(), checked)
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

func (b *batch) run() error {
	if b.transfers.Len() > 0 {
		if err := b.transfers.Issue(b.ctx, b.opts...); err != nil {
			return err
		}
	}
	return b.collectives(func(k *call) error { return b.m.Submit(&k.op, nil) })
}

//export goIssueBatch
func goIssueBatch(h C.chorus_comm, ops *C.chorus_op, n C.int32_t, ns C.int64_t, out *C.chorus_work,
	mayWait C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	*out = 0
	w := new(work)
	b, err := newBatch(h, ops, n, ns, &w.given)
	if err != nil {
		return fail(err)
	}
	if b.m.Stream() != nil && mayWait == 0 {
		for _, k := range b.calls {
			if k.waits() {
				return C.CHORUS_PENDING
			}
		}
	}
	w.m, w.ops = b.m, b.calls
	if b.transfers.Len() > 0 {
		posted := new(comm.Work)
		if err := b.transfers.Issue(b.ctx, append(b.opts, comm.Async(posted))...); err != nil {
			return fail(err)
		}
		w.parts = append(w.parts, posted)
	}
	// A collective that is invalid ends the batch, but what was issued before is under way and needs its work.
	if err := b.collectives(func(k *call) error {
		err := b.m.Submit(&k.op, &k.work)
		if err == nil {
			w.parts = append(w.parts, &k.work)
		}
		return err
	}); err != nil {
		if len(w.parts) == 0 {
			return fail(err)
		}
		w.parts = append(w.parts, failed(err))
	}
	return fail(giveWork(w, out))
}

// failed is a part that has ended.
func failed(err error) part {
	e := &eventual{done: make(chan struct{}), err: err}
	close(e.done)
	return e
}
