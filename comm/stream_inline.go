package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// runInline runs a synchronous collective on the goroutine of its caller, instead of an engine of its stream, if the
// stream has no work: waking a thread takes as long as reducing megabytes. The caller never waits for another
// rank's program: if not all ranks have come, an engine goes on. The call has the lane. It reports false if nothing
// was done.
//
// A failure is the stream's error, as if an engine had run the collective. An interrupt is seen at the end, as
// with engines.
func (x *streamExecutor) runInline(o *call) bool {
	c, d := x.c, x.streams
	a, ok := c.b.(backend.Assembler)
	if !ok || c.opened.engines || o.work != nil || o.Ins != nil || o.Outs != nil ||
		o.Reduce.FactorTensor != nil || c.hooks.Load() != nil || c.gate.closed() || c.b.Cause() != nil {
		return false
	}
	s, err := x.current(o.Ctx, o.Stream)
	if err != nil || !s.CallerRuns() {
		return false
	}
	d.mu.Lock()
	in, out := o.In, o.Out
	if !s.Equal(d.order.last) && d.order.before(s) != nil || !d.useEngineViews(o) || !enterStream(s, o) {
		d.mu.Unlock()
		o.In, o.Out = in, out
		return false
	}
	d.order.last = s
	o.Ctx = context.Background() // the caller's is for the call, which may end before the collective does
	assembled := false
	err = c.attemptBackend(o, func() error {
		err := c.b.Submit(&o.Op)
		o.record = c.rec.Begin(&o.Op, false)
		if err != nil {
			return c.finish(o, err)
		}
		if assembled = a.Assembled(); !assembled {
			return nil
		}
		d.mu.Unlock() // work that is enqueued meanwhile runs after this
		return c.finish(o, c.b.Wait(&o.Op))
	})
	switch {
	case !assembled:
		x.continueOnEngine(o, s, err, in, out)
		d.mu.Unlock()
		return true
	case err != nil:
		_ = s.Continue(func() error { return err })
	default:
		_ = s.Release()
	}
	if o.value != nil {
		o.value.Over = true
	}
	c.releaseCall()
	return true
}

// useEngineViews replaces the tensors of a call by views that engines of the process can touch, and reports whether
// there are such views.
func (d *streams) useEngineViews(o *call) bool {
	var err error
	same := o.In == o.Out
	if o.In != nil {
		o.In, err = d.in.SetView(o.In)
	}
	if same {
		o.Out = o.In
	} else if o.Out != nil && err == nil {
		o.Out, err = d.out.SetView(o.Out)
	}
	return err == nil
}

// enterStream enters a stream for a call, if it has no work and no error.
func enterStream(s *device.Stream, o *call) bool {
	yes, err := s.TryAcquire(o.Kind.String())
	return yes && err == nil
}

// continueOnEngine has an engine do the rest of a collective that was begun, or that has failed with err. It keeps the
// lane, and with it the call and its views of in and out. The caller holds the lock of the streams, so later work is
// enqueued behind it.
func (x *streamExecutor) continueOnEngine(o *call, s *device.Stream, err error, in, out *tensor.Tensor) {
	c := x.c
	var used error
	for _, t := range [2]*tensor.Tensor{in, out} {
		if t != nil {
			used = errors.Join(used, t.UsedBy(s))
		}
	}
	rest := func() error {
		if err == nil {
			err = c.attemptBackend(o, func() error { return c.finish(o, c.b.Wait(&o.Op)) })
		}
		c.releaseCall()
		return single(errors.Join(err, used))
	}
	if s.Continue(rest) != nil { // the stream was destroyed meanwhile
		go rest()
	}
	_ = x.order.after(s)
}

// attemptBackend is attempt for code of the backend alone, which returns or panics.
func (c *Comm) attemptBackend(o *call, f func() error) (err error) {
	c.attempt(o.Kind.String(), o, f, func(e error) { err = e })
	return err
}
