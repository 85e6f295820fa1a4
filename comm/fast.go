package comm

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// fast runs a collective as most are: synchronous, of one tensor of the host or of none, without options, hints or
// hooks. It checks each condition once, as the checks take much of the time of a small operation. It reports false if
// it did nothing: this is no such operation, or there's an error that collective reports.
func (c *Comm) fast(ctx context.Context, kind Kind, t *tensor.Tensor, root int, r Reduction) (error, bool) {
	if c.dev() != nil || c.hooks.Load() != nil || c.hints.Load() != nil || c.gate.closed() || ctx == nil ||
		ctx.Err() != nil {
		return nil, false
	}
	timeout := time.Duration(c.timeout.Load())
	if timeout <= 0 || t != nil && (!t.IsContiguous() || !t.OnHost()) {
		return nil, false
	}
	var in *tensor.Tensor
	switch kind {
	case backend.AllReduce:
		if t == nil || r.FactorTensor != nil || uint(r.Kind) >= uint(len(reducible)) || !reducible[r.Kind][t.DType()] {
			return nil, false
		}
		in = t
	case backend.Broadcast:
		if t == nil || uint(root) >= uint(c.size) {
			return nil, false
		}
	}
	if !c.lane.tryAcquire() {
		return nil, false
	}
	o, held := &c.own, true
	defer c.recoverAndAbort(o, &held)
	if o.Kind != kind || !o.plain {
		*o = call{owner: true, plain: true}
		o.Kind = kind
	}
	o.Ctx, o.Timeout, o.In, o.Out, o.Root = ctx, timeout, in, t, root
	o.Seq, o.Algorithm = 0, "" // not those of the one before, should this one be refused
	o.Reduce.Kind, o.Reduce.Factor = r.Kind, r.Factor
	err := c.b.Submit(&o.Op)
	// It's recorded while this rank's announcement is on its way to the others.
	record := c.rec.Begin(&o.Op, false)
	if err == nil {
		err = c.b.Wait(&o.Op)
	}
	if err == nil {
		c.rec.Done(&o.Op)
	} else {
		c.rec.End(record, &o.Op, err)
		c.failed(err)
		o.plain = false
	}
	o.Ctx, o.In, o.Out = nil, nil, nil // it keeps no tensor alive
	held = false
	c.lane.release()
	if err != nil {
		c.fatal(err)
		rethrow(err)
	}
	return err, true
}
