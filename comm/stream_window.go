package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// onStream reports whether an operation on a window with these tensors is enqueued, and what is wrong with where they are.
func (w *Window) onStream(ts ...*tensor.Tensor) (on bool, bad string) {
	if len(ts) == 0 {
		return w.c.dev() != nil, ""
	}
	for _, t := range ts[1:] {
		if t.On() != ts[0].On() {
			return false, apartFrom(ts[0], t)
		}
	}
	return !ts[0].OnHost(), w.c.here(ts[0])
}

// enqueue puts a window operation on the current stream: f gets the tensors as the backend can touch them. One that is
// awaited elsewhere, a signal, is in no order but the stream's.
func (w *Window) enqueue(ctx context.Context, op string, chained bool, f func(ts []*tensor.Tensor) error, ts ...*tensor.Tensor) error {
	s, err := w.c.dev().dev.CurrentStream(ctx)
	if err != nil {
		return w.c.deviceError(op, err)
	}
	views := make([]*tensor.Tensor, len(ts))
	for i, t := range ts {
		if err = t.UsedBy(s); err == nil {
			views[i], err = t.EngineView()
		}
		if err != nil {
			return w.c.deviceError(op, err)
		}
	}
	run := func() error { return f(views) }
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
			return f(views)
		}
	}
	return w.c.deviceError(op, w.push(s, op, chained, run))
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
func (w *Window) quiesce(ctx context.Context) error {
	if err := w.order.event.Synchronize(ctx); err != nil && ctx.Err() != nil && !errors.Is(err, device.ErrFailed) {
		return &CanceledError{Where: w.c.at("close_window"), Err: context.Cause(ctx)}
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
		t, err = c.touched(t)
	}
	return t, c.deviceError(op, err)
}
