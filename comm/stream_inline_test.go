package comm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// sumOf is the all-reduce of a tensor, as a value for Submit.
func sumOf(x *tensor.Tensor, s *device.Stream) *comm.Op {
	return &comm.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: comm.Sum, Stream: s}
}

// An operation on an idle stream runs at once on the caller's goroutine, if the other ranks are there. All others
// are enqueued.
func TestInline(t *testing.T) {
	comms := onAccInte("shm")(t, 1)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := numbers(ctx, c, 1000, 3)
		if err != nil {
			return err
		}
		submit := func(what string, over bool, w *comm.Work) error {
			op := sumOf(x, s)
			if err := c.Submit(op, w); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if op.Over != over {
				return fmt.Errorf("%s: over is %v", what, op.Over)
			}
			if s.Capturing() {
				return nil
			}
			if idle, err := s.Query(); err != nil || over && !idle {
				return fmt.Errorf("%s: the stream is idle: %v, %v", what, idle, err)
			}
			return nil
		}
		if err := errors.Join(s.Synchronize(ctx), submit("idle", true, nil)); err != nil {
			return err
		}
		release := make(chan struct{})
		if err := s.HostFunc("hold", func() error { <-release; return nil }); err != nil {
			return err
		}
		err = submit("busy", false, nil)
		close(release)
		var w comm.Work
		if err := errors.Join(err, s.Synchronize(ctx), submit("asynchronous", false, &w), w.Synchronize(ctx)); err != nil {
			return err
		}
		g, err := device.Capture(s, func() error {
			return submit("captured", false, nil)
		})
		if err != nil {
			return err
		}
		defer g.Close()
		if err := errors.Join(g.Replay(s), s.Synchronize(ctx)); err != nil {
			return err
		}
		h := c.RegisterPreHook(func(comm.OpInfo) error { return nil })
		err = submit("with a hook", false, nil)
		h.Remove()
		return errors.Join(err, s.Synchronize(ctx), submit("idle again", true, nil), holds(ctx, x, 3))
	})
}

// A call returns although the other rank's program gets to the collective only later. Later work of this stream and
// of others is in order.
func TestInlineWaitsForNoProgram(t *testing.T) {
	for _, fabric := range []string{"mem", "shm"} {
		comms := onAccInte(fabric)(t, 2)
		called := make(chan struct{})
		eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
			x, err := numbers(ctx, c, 1000, 1)
			if err != nil {
				return err
			}
			y, err := numbers(ctx, c, 10, 1)
			if err != nil {
				return err
			}
			other, err := c.Stream().Device().NewStream(device.Normal)
			if err != nil {
				return err
			}
			defer other.Close()
			if err := s.Synchronize(ctx); err != nil {
				return err
			}
			for round := range 20 {
				if c.Rank() == 1 {
					<-called
					time.Sleep(time.Duration(round%3) * time.Millisecond)
				}
				op := sumOf(x, s)
				err := errors.Join(c.Submit(op, nil), c.Submit(sumOf(y, other), nil), c.Submit(sumOf(x, s), nil))
				if c.Rank() == 0 {
					if op.Over {
						err = errors.Join(err, errors.New("it's over before the other rank has begun"))
					}
					called <- struct{}{}
				}
				if err := errors.Join(err, s.Synchronize(ctx), other.Synchronize(ctx), holds(ctx, x, 4), holds(ctx, y, 2),
					tensor.Fill(ctx, x, 1.0), s.Synchronize(ctx)); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
				if err := errors.Join(tensor.Fill(ctx, y, 1.0), s.Synchronize(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
		finalizeAll(t, comms)
	}
}

// A collective that fails on its caller's goroutine is a failure of the stream, as one that fails on an
// engine.
func TestInlineFails(t *testing.T) {
	comms := onAccInte("shm")(t, 2)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := numbers(ctx, c, 8+c.Rank(), 1)
		if err != nil {
			return err
		}
		err = errors.Join(s.Synchronize(ctx), c.Submit(sumOf(x, s), nil))
		if err != nil {
			return fmt.Errorf("the call: %w", err)
		}
		if err := s.Synchronize(ctx); !errors.Is(err, comm.ErrMismatch) || !errors.Is(err, device.ErrFailed) {
			return fmt.Errorf("the stream: %v", err)
		}
		if err := c.Submit(sumOf(x, s), nil); !errors.Is(err, comm.ErrMismatch) {
			return fmt.Errorf("the next call: %v", err)
		}
		return nil
	})
	for _, c := range comms {
		c.Abort(errors.New("the test is over"))
		_ = c.Finalize(context.Background())
	}
}

// A collective that runs inline allocates nothing.
func TestInlineAllocatesNothing(t *testing.T) {
	comms := onAccInte("shm")(t, 1)
	defer finalizeAll(t, comms)
	eachOn(t, comms, func(ctx context.Context, c *comm.Comm, s *device.Stream) error {
		x, err := tensor.EmptyOn(ctx, c.Stream().Device(), dtype.Float32, 1000)
		if err != nil {
			return err
		}
		op := sumOf(x, s)
		err = c.Submit(op, nil)
		if n := testing.AllocsPerRun(100, func() { err = errors.Join(err, c.Submit(op, nil)) }); n > 0 {
			return fmt.Errorf("%v allocations, %w", n, err)
		}
		return err
	})
}
