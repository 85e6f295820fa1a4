//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// blocks are allocations of the library's of several sizes.
func blocks(c *comm.Comm, sizes ...int) (all []*tensor.Tensor) {
	for _, n := range sizes {
		all = append(all, tensor.Must(c.Zeros(dtype.Int32, n*segment)))
	}
	return all
}

// Blocks become windows of the library's in the order of their allocations, whatever order callers give them in. Memory
// that is freed while it's registered goes back when it's deregistered. Blocks that are still registered at the end are
// deregistered before the communicator ends.
func TestSymmetricMemory(t *testing.T) {
	for _, blocking := range []string{"0", "1"} {
		library, calls := counting(t, "2.27")
		count := calls.count
		hints := comm.WithHints(map[string]string{"library": library, "blocking": blocking})
		each(t, open(t, "nccl", "", 2, hints), func(ctx context.Context, c *comm.Comm, s *device.Stream,
			_ *tensor.Tensor) error {
			all := blocks(c, 2, 1, 3)
			given := slices.Clone(all)
			if c.Rank() == 1 {
				slices.Reverse(given)
			}
			if err := c.RegisterSymmetric(ctx, given...); err != nil {
				return err
			}
			for _, x := range all {
				if err := errors.Join(tensor.Fill(ctx, x, 1), c.AllReduce(ctx, x, comm.Sum)); err != nil {
					return err
				}
			}
			if got := tensor.Must(all[1].To(ctx, nil)); got.At(segment-1) != 2 {
				return fmt.Errorf("the sum is %v", got.At(segment-1))
			}
			first := all[1]
			if err := errors.Join(c.DeregisterSymmetric(ctx, first), c.RegisterSymmetric(ctx, first)); err != nil {
				return err
			}
			if err := s.Synchronize(ctx); err != nil {
				return err
			}
			n := first.NumEl()
			first.Free()
			if err := errors.Join(s.Device().EmptyCache(), c.Barrier(ctx), s.Synchronize(ctx)); err != nil {
				return err
			}
			if again := blocks(c, n/segment)[0]; again.Pointer() == first.Pointer() {
				return errors.New("memory that is registered was given back")
			}
			return nil
		})
		if n := count("ncclCommWindowRegister"); n != 8 || count("ncclCommWindowDeregister") != n {
			t.Errorf("%d windows, %d ended", n, count("ncclCommWindowDeregister"))
		}
		testutil.Eventually(t, func() bool { return count("ncclMemFree") >= 2 }, "freed memory is given back")
	}
}

// If one rank can't register a block, or has another size, no rank registers any, and the communicator goes on.
func TestSymmetricMemoryRefused(t *testing.T) {
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		me, all := c.Rank(), blocks(c, 1, 2)
		zero := func(a, b []*tensor.Tensor) []*tensor.Tensor {
			if me == 0 {
				return a
			}
			return b
		}
		for _, refused := range []struct {
			what string
			give []*tensor.Tensor
			is   error
			text string
		}{
			{"sizes", zero(all[:1], all[1:]), comm.ErrMismatch, "blocks of [16777216] bytes"},
			{"counts", zero(all, all[1:]), comm.ErrMismatch, "blocks of [16777216 33554432] bytes"},
			{"other memory", zero([]*tensor.Tensor{x}, all[:1]), comm.ErrInvalidArgument,
				"are no allocation of NCCL's own memory (ncclMemAlloc)"},
			{"a part", []*tensor.Tensor{tensor.Must(all[0].Narrow(0, 0, 10))}, comm.ErrInvalidArgument, "are no allocation"},
			{"twice", zero([]*tensor.Tensor{all[0], all[0]}, all), comm.ErrInvalidArgument, "are given twice"},
		} {
			err := c.RegisterSymmetric(ctx, refused.give...)
			if !errors.Is(err, refused.is) || !strings.Contains(err.Error(), refused.text) {
				return fmt.Errorf("%s: %w", refused.what, err)
			}
		}
		if err := c.DeregisterSymmetric(ctx, all...); !errors.Is(err, comm.ErrInvalidArgument) ||
			!strings.Contains(err.Error(), "not registered as symmetric memory") {
			return fmt.Errorf("what isn't registered: %w", err)
		}
		if err := c.RegisterSymmetric(ctx, all...); err != nil {
			return err
		}
		if err := c.RegisterSymmetric(ctx, all[0]); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("a second time: %w", err)
		}
		return errors.Join(c.DeregisterSymmetric(ctx, all...), c.AllReduce(ctx, all[0], comm.Sum), s.Synchronize(ctx))
	})
}

// A rank that doesn't come is named, and a library without windows says which has them.
func TestSymmetricMemoryMissing(t *testing.T) {
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, _ *tensor.Tensor) error {
		x := blocks(c, 1)
		if c.Rank() == 0 {
			c.SetTimeout(100 * time.Millisecond)
			err := c.RegisterSymmetric(ctx, x...)
			var late *comm.TimeoutError
			if !errors.As(err, &late) || !slices.Equal(late.Missing, []int{1}) {
				return fmt.Errorf("alone: %w", err)
			}
		}
		<-c.Broken()
		return nil
	})
	library := simulate(t, nccltest.Options{Version: "2.19"})
	const text = "NCCL 2.19.0 (a stand-in for TestSymmetricMemoryMissing) has no windows: it lacks " +
		"ncclCommWindowRegister, ncclCommWindowDeregister, which came with NCCL 2.27"
	each(t, open(t, "nccl", library, 1), func(ctx context.Context, c *comm.Comm, _ *device.Stream,
		_ *tensor.Tensor) error {
		if err := c.RegisterSymmetric(ctx, blocks(c, 1)...); !errors.Is(err, comm.ErrUnsupported) ||
			!strings.Contains(err.Error(), text) {
			return fmt.Errorf("without windows: %w", err)
		}
		return nil
	})
}
