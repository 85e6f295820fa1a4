package commtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// StreamWindows tests one-sided operations on the memory of devices.
func StreamWindows(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if !c.Capabilities().Windows {
				return nil
			}
			return streamWindow(ctx, c)
		})
	}
}

func streamWindow(ctx context.Context, c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	const size = 10_000
	m := &maker{ctx: ctx, c: c}
	mem, err := c.Zeros(dtype.Int64, size) // libraries take no other memory
	if err != nil {
		return err
	}
	w, err := c.NewWindow(ctx, mem)
	if err != nil {
		return err
	}
	right, left := (me+1)%n, (me+n-1)%n
	part := tensor.Must(mem.Narrow(0, size/4, size/2))
	for round := range 5 { // without the host between the rounds
		src := m.of(dtype.Int64, size/2, func(i int) float64 { return float64(me*1000 + round*100 + i%50) })
		kept := m.poisoned(dtype.Int64, size/2)
		var waited, wrote, told comm.Work
		var shift error
		if to := (comm.Target{Rank: right, Offset: size / 4}); round%2 == 0 {
			shift = errors.Join(w.Put(ctx, src, to), w.Signal(ctx, right, 3), w.WaitSignal(ctx, left, 3))
		} else { // the wait is first, and blocks no other rank
			shift = errors.Join(w.WaitSignal(ctx, left, 3, comm.Async(&waited)), w.Put(ctx, src, to, comm.Async(&wrote)),
				w.Signal(ctx, right, 3, comm.Async(&told)), waited.Wait(ctx), wrote.Wait(ctx), told.Wait(ctx))
		}
		if err := errors.Join(
			shift,
			tensor.Copy(ctx, kept, part),
			w.Signal(ctx, left, 4),
			w.WaitSignal(ctx, right, 4),
		); err != nil {
			return err
		}
		if err := check(ctx, fmt.Sprintf("round %d", round), kept,
			func(i int) float64 { return float64(left*1000 + round*100 + i%50) }); err != nil {
			return err
		}
	}
	one := m.of(dtype.Int64, 1, func(int) float64 { return 1 })
	if c.Capabilities().PutOnly {
		at := comm.Target{Rank: right}
		for what, err := range map[string]error{
			"get": w.Get(ctx, one, at), "accumulate": w.Accumulate(ctx, one, comm.Sum, at), "fence": w.Fence(ctx, -1),
			"fetch_op": w.FetchOp(ctx, one, one, comm.Sum, at), "swap": w.CompareAndSwap(ctx, one, one, one, at),
		} {
			if !errors.Is(err, comm.ErrUnsupported) {
				return fmt.Errorf("%s, which the backend lacks, gives %v", what, err)
			}
		}
		if err := w.Put(ctx, one, comm.Target{Rank: right, Offset: size}); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("beyond the end: %v", err)
		}
		// Signals without a wait don't count for the next window.
		if err := errors.Join(w.Signal(ctx, right, 5), w.Close(ctx)); err != nil {
			return err
		}
		if w, err = c.NewWindow(ctx, mem); err != nil {
			return err
		}
		return errors.Join(w.Signal(ctx, right, 5), w.WaitSignal(ctx, left, 5), w.Close(ctx))
	}
	old, got := m.poisoned(dtype.Int64, 1), m.poisoned(dtype.Int64, 1)
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for range 10 {
		if err := errors.Join(
			w.Accumulate(ctx, one, comm.Sum, comm.Target{Rank: 0}),
			w.FetchOp(ctx, old, one, comm.Sum, comm.Target{Rank: 0, Offset: 1}),
		); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Fence(ctx, -1), c.Barrier(ctx)); err != nil {
		return err
	}
	for off := range 2 {
		if err := w.Get(ctx, got, comm.Target{Rank: 0, Offset: off}); err != nil {
			return err
		}
		if err := check(ctx, "sum of all", got, func(int) float64 { return float64(10 * n) }); err != nil {
			return err
		}
	}
	if err := synchronized(ctx, c, c.Barrier(ctx)); err != nil { // before rank 0's memory changes
		return err
	}
	if me == 0 {
		zero := m.of(dtype.Int64, 1, func(int) float64 { return 0 })
		if err := w.CompareAndSwap(ctx, old, zero, one, comm.Target{Rank: right, Offset: 2}); err != nil {
			return err
		}
		if err := check(ctx, "swapped", old, func(int) float64 { return 0 }); err != nil {
			return err
		}
	}
	var work comm.Work
	if err := w.Put(ctx, tensor.Must(one.Narrow(0, 0, 0)), comm.Target{Rank: right}, comm.Async(&work)); err != nil {
		return err
	}
	if err := work.Synchronize(ctx); err != nil || work.Status() != comm.Completed {
		return fmt.Errorf("a put of nothing: %v, %v", work.Status(), err)
	}
	if _, err := w.Map(right); !errors.Is(err, comm.ErrUnsupported) {
		return fmt.Errorf("mapping a device's window for the host gives %v", err)
	}
	if err := w.Put(ctx, one, comm.Target{Rank: right, Offset: size}); !errors.Is(err, comm.ErrInvalidArgument) {
		return fmt.Errorf("beyond the end: %v", err)
	}
	return w.Close(ctx)
}
