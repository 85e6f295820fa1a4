//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// A communicator that's suspended refuses what would need its memory, and works again when it's resumed.
func TestSuspend(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.32"})
	each(t, open(t, "nccl", library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		x *tensor.Tensor) error {
		refused := func(what, text string, err error) error {
			if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("%s gives %w", what, err)
			}
			return nil
		}
		const asleep = "the communicator is suspended; Resume it first"
		for range 2 {
			if err := errors.Join(refused("to resume one that's awake", "is not suspended", c.Resume(ctx)),
				c.AllReduce(ctx, x, comm.Sum), c.Suspend(ctx)); err != nil {
				return err
			}
			_, split := c.Split(ctx, []int{c.Rank()})
			_, window := c.NewWindow(ctx, x)
			err := errors.Join(refused("to suspend twice", "the communicator is suspended", c.Suspend(ctx)),
				refused("an operation", asleep, c.AllReduce(ctx, x, comm.Sum)), refused("a split", asleep, split),
				refused("a message", asleep, c.Send(ctx, x, 1-c.Rank())), refused("a window", asleep, window),
				refused("registration", asleep, c.Register(x)), c.Resume(ctx), sums(ctx, c))
			if err != nil || c.Err() != nil {
				return errors.Join(err, c.Err())
			}
		}
		if err := c.Suspend(ctx); err != nil { // and is finalized
			return err
		}
		return s.Synchronize(ctx)
	})
	each(t, open(t, "nccl", simulate(t, nccltest.Options{Version: "2.29"}), 1), func(ctx context.Context, c *comm.Comm,
		s *device.Stream, _ *tensor.Tensor) error {
		for _, err := range []error{c.Suspend(ctx), c.Resume(ctx)} {
			if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(),
				"has no suspend: it lacks ncclCommSuspend, ncclCommResume, which came with NCCL 2.29.7") {
				return fmt.Errorf("at 2.29: %w", err)
			}
		}
		return nil
	})
}

// A rank that doesn't come to a suspension is a time-out of the others.
func TestSuspendAlone(t *testing.T) {
	library := simulate(t, nccltest.Options{Version: "2.32"})
	each(t, open(t, "nccl", library, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream,
		_ *tensor.Tensor) error {
		if c.Rank() == 0 {
			if err := c.SetTimeout(100e6); err != nil {
				return err
			}
			if err := c.Suspend(ctx); !errors.Is(err, comm.ErrTimeout) {
				return fmt.Errorf("alone: %w", err)
			}
		}
		<-c.Broken()
		return nil
	})
}
