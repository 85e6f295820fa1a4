//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// A wait that is over makes an operation overdue. Nothing else can be declared so.
func TestExpire(t *testing.T) {
	each(t, world(t, 3), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		var done, w comm.Work
		if err := errors.Join(c.AllReduce(ctx, x, comm.Sum, comm.Async(&done)), done.Synchronize(ctx),
			done.Expire(time.Second)); err != nil {
			return fmt.Errorf("an operation that is done: %w", err)
		}
		if c.Rank() == 0 {
			if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
				return err
			}
			brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if err := w.Synchronize(brief); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a wait gives %v", err)
			}
			var late *comm.TimeoutError
			if err := w.Expire(20 * time.Millisecond); !errors.As(err, &late) || !slices.Equal(late.Missing, []int{1, 2}) ||
				late.Elapsed != 20*time.Millisecond {
				return fmt.Errorf("an operation that is overdue gives %v", err)
			}
			return nil
		}
		<-c.Broken()
		if !errors.Is(c.Err(), comm.ErrTimeout) {
			return fmt.Errorf("broken by %v", c.Err())
		}
		return nil
	})
	var none comm.Work
	if err := none.Expire(time.Second); !errors.Is(err, comm.ErrUnsupported) {
		t.Errorf("no operation at all gives %v", err)
	}
}

// A wait for an operation of a communicator that is broken fails at once, though the library has not let go of it yet.
func TestWaitsOfTheBroken(t *testing.T) {
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		if c.Rank() == 1 {
			<-c.Broken()
			return nil
		}
		var w comm.Work
		if err := c.AllReduce(ctx, x, comm.Sum, comm.Async(&w)); err != nil {
			return err
		}
		c.Abort(errors.New("enough"))
		if err := w.Wait(ctx); !errors.Is(err, comm.ErrAborted) {
			return fmt.Errorf("a wait gives %v", err)
		}
		return nil
	})
}
