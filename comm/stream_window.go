package comm

import (
	"context"
	"errors"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

const hostBlocks = "it's on the host's memory, where operations on windows block: leave out Async"

// onStream reports whether an operation on a window with these tensors is enqueued. One that isn't comes after those
// that are, and has no work.
func (w *Window) onStream(ctx context.Context, work *Work, op string, ts ...*tensor.Tensor) (on bool, err error) {
	on = w.on
	if len(ts) > 0 {
		on = !ts[0].OnHost()
		bad := w.c.here(ts[0])
		for _, t := range ts[1:] {
			if t.On() != ts[0].On() {
				bad = apartFrom(ts[0], t)
			}
		}
		if bad != "" {
			return false, w.c.invalid(op, "%s", bad)
		}
	}
	switch {
	case on:
	case work != nil:
		err = w.c.invalid(op, "%s", hostBlocks)
	case w.c.dev() != nil:
		err = w.quiesce(ctx, op)
	}
	return on, err
}

// nothing is an operation on no elements, if err is nil: it's done when it's issued.
func (w *Window) nothing(work *Work, op string, err error) error {
	if err != nil || work == nil {
		return err
	}
	if w.c.dev() == nil {
		return w.c.invalid(op, "%s", hostBlocks)
	}
	if err = work.issueOn(w.c, op); err == nil {
		work.complete(nil)
	}
	return err
}

// windowOp carries out an operation on a window with tensors as the backend wants them.
type windowOp = func(ctx context.Context, ts []*tensor.Tensor) error

// enqueue puts a window operation on the current stream, or on one behind that if it's asynchronous: f gets the tensors
// as the backend can touch them. One that is awaited elsewhere, a signal, is in no order but the stream's.
func (w *Window) enqueue(o *call, op string, peer int, chained bool, f windowOp, ts ...*tensor.Tensor) error {
	s, err := w.c.dev().dev.CurrentStream(o.Ctx)
	if err != nil {
		return w.c.deviceError(op, err)
	}
	work := o.work
	if w.c.dev().enq != nil {
		return w.c.deviceError(op, w.enqueueOnBackend(o, s, op, peer, chained, f, ts))
	}
	if work == nil {
		return w.c.deviceError(op, w.enqueueOn(s, op, chained, f, ts))
	}
	if err := work.issueOn(w.c, op); err != nil {
		return err
	}
	capturing := s.Capturing()
	complete := func(ctx context.Context, ts []*tensor.Tensor) error {
		err := f(ctx, ts)
		if !capturing {
			work.complete(err)
		}
		return err
	}
	err = w.c.deviceError(op, w.enqueueOnOwnStream(s, work, op, chained, complete, ts))
	if err != nil || capturing {
		work.complete(err)
	}
	return err
}

// enqueueOnBackend has a backend that enqueues by itself put a window operation on s, or on a stream behind it. Its end
// and its timeout are watched as those of other operations.
func (w *Window) enqueueOnBackend(o *call, s *device.Stream, op string, peer int, chained bool, f windowOp,
	ts []*tensor.Tensor) error {
	c, d, work := w.c, w.c.dev(), o.work
	d.mu.Lock()
	defer d.mu.Unlock()
	capturing := s.Capturing()
	on := s
	e := &enqueued{round: round{c: c, work: work}, timeout: o.Timeout}
	message := backend.Op{Kind: backend.Recv, Peer: peer}
	e.late = func(elapsed time.Duration) { d.enq.Overdue(c.at(op), &message, elapsed) }
	if work != nil {
		if err := work.issueOn(c, op); err != nil {
			return err
		}
		e.on = work.onDevice()
	} else {
		e.on = d.work(c.b)
	}
	if !c.gate.enter() {
		return &FinalizedError{Where: c.at(op)}
	}
	err := func() (err error) {
		if work != nil {
			if on, err = d.transfer(); err == nil {
				err = on.WaitStream(s)
			}
		}
		for _, t := range ts {
			if err == nil {
				err = t.UsedBy(on)
			}
		}
		e.s = on
		if err == nil && !capturing {
			err = on.Record(&e.began)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && chained {
			err = w.order.before(on)
		}
		if err == nil {
			err = f(device.WithStream(context.Background(), on), ts)
		}
		if err == nil && chained {
			err = w.order.after(on)
		}
		if err == nil && (!capturing || work != nil) {
			err = on.Record(&e.on.event)
		}
		return err
	}()
	if err == nil && !capturing {
		c.watchEnqueued(e)
		return nil
	}
	c.finishEnqueued(e, err)
	return err
}

// enqueueOnOwnStream enqueues an asynchronous operation on a stream of its own, behind the work of
// s.
func (w *Window) enqueueOnOwnStream(s *device.Stream, work *Work, op string, chained bool, f windowOp,
	ts []*tensor.Tensor) error {
	d := w.c.dev()
	d.mu.Lock() // no other call takes the stream before there is something on it
	defer d.mu.Unlock()
	own, err := d.transfer()
	if err == nil {
		err = own.WaitStream(s)
	}
	if err == nil {
		err = w.enqueueOn(own, op, chained, f, ts)
	}
	if err == nil {
		err = own.Record(&work.on.event)
	}
	return err
}

func (w *Window) enqueueOn(s *device.Stream, op string, chained bool, f windowOp, ts []*tensor.Tensor) error {
	var err error
	views := make([]*tensor.Tensor, len(ts))
	for i, t := range ts {
		if err = t.UsedBy(s); err == nil {
			views[i], err = t.EngineView()
		}
		if err != nil {
			return err
		}
	}
	run := func() error { return f(context.Background(), views) }
	if chained {
		run = func() error {
			if !w.c.gate.enter() {
				return &FinalizedError{Where: w.c.at(op)}
			}
			defer w.c.gate.exit()
			if !w.gate.enter() {
				return &FinalizedError{Where: w.c.at(op)}
			}
			defer w.gate.exit()
			return f(context.Background(), views)
		}
	}
	return w.push(s, op, chained, run)
}

func (w *Window) push(s *device.Stream, op string, chained bool, run func() error) error {
	if !chained {
		return s.HostFunc(op, run)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.order.before(s); err != nil {
		return err
	}
	if err := s.HostFunc(op, run); err != nil {
		return err
	}
	return w.order.after(s)
}

// quiesce waits until the operations that were enqueued are done, well or not.
func (w *Window) quiesce(ctx context.Context, op string) error {
	if err := w.order.event.Synchronize(ctx); err != nil && ctx.Err() != nil && !errors.Is(err, device.ErrFailed) {
		return &CanceledError{Where: w.c.at(op), Err: context.Cause(ctx)}
	}
	return nil
}

// exposed is a window's memory as the backend can touch it, when what the current stream does to it is done.
func (c *Comm) exposed(ctx context.Context, op string, t *tensor.Tensor) (*tensor.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	if bad := c.here(t); bad != "" {
		return nil, c.invalid(op, "%s", bad)
	}
	if t.OnHost() {
		return t, nil
	}
	s, err := t.On().CurrentStream(ctx)
	if err == nil {
		err = s.Synchronize(ctx)
	}
	if err == nil {
		t, err = c.engineView(t)
	}
	return t, c.deviceError(op, err)
}
