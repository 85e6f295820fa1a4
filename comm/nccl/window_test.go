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
	"github.com/chorus-comms/chorus/tensor"
)

// Windows that are open together have signals of their own, and what one leaves is not the next one's. There are as
// many as the signals are enough for.
func TestWindows(t *testing.T) {
	// Each rank's, for signals that haven't come.
	waits := []chan struct{}{make(chan struct{}, 10), make(chan struct{}, 10)}
	sim := simulate(t, nccltest.Options{Version: levels[len(levels)-1],
		WaitsForSignal: func(rank int) { waits[rank] <- struct{}{} }})
	each(t, open(t, "nccl", sim, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		other := 1 - c.Rank()
		mem := tensor.Must(c.Zeros(dtype.Int32, 300))
		first, err := c.NewWindow(ctx, tensor.Must(mem.Narrow(0, 10, 100)))
		if err != nil {
			return err
		}
		second, err := c.NewWindow(ctx, tensor.Must(mem.Narrow(0, 110, 100)))
		if err != nil {
			return err
		}
		var waited comm.Work
		if err := errors.Join(second.WaitSignal(ctx, other, 7, comm.Async(&waited)), first.Signal(ctx, other, 7),
			first.Put(ctx, x, comm.Target{Rank: other}), first.Signal(ctx, other, 0), first.WaitSignal(ctx, other, 0),
			s.Synchronize(ctx)); err != nil {
			return err
		}
		if got := tensor.Must(mem.To(ctx, nil)); got.At(9) != 0 || got.At(10) != 1 || got.At(109) != 1 || got.At(110) != 0 {
			return fmt.Errorf("the memory is %v", got)
		}
		if waited.Status() == comm.Completed {
			return errors.New("a signal to one window is another's")
		}
		if err := errors.Join(c.Barrier(ctx), s.Synchronize(ctx)); err != nil { // both have looked
			return err
		}
		if err := errors.Join(second.Signal(ctx, other, 7), waited.Synchronize(ctx), first.Close(ctx)); err != nil {
			return err
		}
		if first, err = c.NewWindow(ctx, tensor.Must(mem.Narrow(0, 0, 50))); err != nil {
			return err
		}
		for len(waits[c.Rank()]) > 0 { // those of before, which have ended
			<-waits[c.Rank()]
		}
		var again comm.Work
		if err := first.WaitSignal(ctx, other, 7, comm.Async(&again)); err != nil {
			return err
		}
		select {
		case <-waits[c.Rank()]:
		case <-again.Done():
			return errors.New("a signal that nobody waited for is the next window's")
		}
		if err := errors.Join(c.Barrier(ctx), s.Synchronize(ctx), first.Signal(ctx, other, 7),
			again.Synchronize(ctx)); err != nil {
			return err
		}
		all := []*comm.Window{first, second}
		for len(all) < 4 {
			w, err := c.NewWindow(ctx, mem)
			if err != nil {
				return err
			}
			all = append(all, w)
		}
		if _, err := c.NewWindow(ctx, mem); !errors.Is(err, comm.ErrUnsupported) ||
			!strings.Contains(err.Error(), "257 signals (numRmaSig) are enough for 4 windows") {
			return fmt.Errorf("a fifth window gives %v", err)
		}
		for _, w := range all {
			err = errors.Join(err, w.Close(ctx))
		}
		return err
	})
}

// A signal that doesn't come in time breaks the communicator, and the error names who didn't send it; a window that
// ranks want to be of different sizes is none.
func TestWindowFailures(t *testing.T) {
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		if _, err := c.NewWindow(ctx, tensor.Must(x.Narrow(0, 0, 10+c.Rank()))); !errors.Is(err, comm.ErrMismatch) {
			return fmt.Errorf("sizes that differ give %v", err)
		}
		w, err := c.NewWindow(ctx, tensor.Must(c.Zeros(dtype.Int32, 100)))
		if err != nil {
			return err
		}
		if err := errors.Join(c.Barrier(ctx), s.Synchronize(ctx)); err != nil { // both have it
			return err
		}
		if c.Rank() == 0 {
			if err := w.WaitSignal(ctx, 1, 0, comm.Timeout(50*time.Millisecond)); err != nil {
				return err
			}
		}
		<-c.Broken()
		var late *comm.TimeoutError
		if !errors.As(c.Err(), &late) || !slices.Equal(late.Missing, []int{1}) ||
			c.Rank() == 0 && !strings.Contains(c.Err().Error(), "wait_signal") {
			return fmt.Errorf("broken by %v", c.Err())
		}
		return s.Synchronize(ctx)
	})
}

// Memory that the library hasn't allocated breaks the communicator, because the other ranks wait in the library. The
// error says which memory it takes.
func TestWindowOfOtherMemory(t *testing.T) {
	each(t, world(t, 2), func(ctx context.Context, c *comm.Comm, s *device.Stream, x *tensor.Tensor) error {
		mem := tensor.Must(c.Zeros(dtype.Int32, 100))
		if c.Rank() == 0 {
			mem = x
		}
		_, err := c.NewWindow(ctx, mem)
		if err == nil {
			<-c.Broken()
			err = c.Err()
		}
		const text = "windows take memory that NCCL has given out (ncclMemAlloc), as Comm.Empty and get_mem_allocator do"
		if !strings.Contains(err.Error(), text) {
			return fmt.Errorf("plain memory gives %w", err)
		}
		return s.Synchronize(ctx)
	})
}

// The error names the functions that windows need, with the release that has them.
func TestWithoutWindows(t *testing.T) {
	for level, text := range map[string]string{
		"2.19": "has no windows: it lacks ncclCommWindowRegister, ncclCommWindowDeregister, which came with NCCL 2.27",
		"2.28": "has no put and signal: it lacks ncclPutSignal, ncclSignal, ncclWaitSignal, which came with NCCL 2.29",
		"2.29": "counts puts among the only signals that it has: numRmaSig came with NCCL 2.31.0",
	} {
		library := simulate(t, nccltest.Options{Version: level})
		each(t, open(t, "nccl", library, 1), func(ctx context.Context, c *comm.Comm, s *device.Stream,
			x *tensor.Tensor) error {
			if c.Capabilities().Windows {
				return errors.New("it has windows")
			}
			if _, err := c.NewWindow(ctx, x); !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("%s: %v", level, err)
			}
			return nil
		})
	}
}
