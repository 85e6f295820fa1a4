package commtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Windows tests one-sided operations, with data that changes every round.
func Windows(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if !c.Capabilities().Windows {
				return nil
			}
			for _, shared := range []bool{false, true} {
				if err := windowRounds(ctx, c, shared); err != nil {
					return fmt.Errorf("shared=%v: %w", shared, err)
				}
			}
			return nil
		})
	}
}

func windowRounds(ctx context.Context, c *comm.Comm, shared bool) error {
	n, me := c.Size(), c.Rank()
	const size = 100_000
	mem := tensor.Must(tensor.Zeros(dtype.Int64, size))
	if shared {
		mem = tensor.Must(c.Zeros(dtype.Int64, size))
	}
	local, err := tensor.Slice[int64](mem)
	if err != nil {
		return err
	}
	w, err := c.NewWindow(ctx, mem)
	if err != nil {
		return err
	}
	right, left := (me+1)%n, (me+n-1)%n
	// A ring of puts, each followed by a signal; the receiver answers so that the next round may overwrite.
	for round := range 10 {
		src := make([]int64, size/2)
		for i := range src {
			src[i] = int64(me*1_000_000 + round*1000 + i)
		}
		if err := w.Put(ctx, tensor.Of(src), comm.Target{Rank: right, Offset: size / 4}); err != nil {
			return err
		}
		if err := w.Signal(ctx, right, 3); err != nil {
			return err
		}
		if err := w.WaitSignal(ctx, left, 3); err != nil {
			return err
		}
		for i := range src {
			if got, want := local[size/4+i], int64(left*1_000_000+round*1000+i); got != want {
				return fmt.Errorf("round %d: element %d is %d, want %d", round, i, got, want)
			}
		}
		if err := w.Signal(ctx, left, 4); err != nil {
			return err
		}
		if err := w.WaitSignal(ctx, right, 4); err != nil {
			return err
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	// Gets read what the neighbour holds.
	got := make([]int64, 1000)
	if err := w.Get(ctx, tensor.Of(got), comm.Target{Rank: right, Offset: size / 4}); err != nil {
		return err
	}
	for i := range got {
		if want := int64(me*1_000_000 + 9000 + i); got[i] != want {
			return fmt.Errorf("get: element %d is %d, want %d", i, got[i], want)
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	// Everybody updates rank 0: sums, tickets and a lock.
	one := tensor.Of([]int64{1})
	tickets := map[int64]bool{}
	for range 50 {
		if err := w.Accumulate(ctx, tensor.Of([]int64{1, 2, 3}), comm.Sum, comm.Target{Rank: 0}); err != nil {
			return err
		}
		old := []int64{0}
		if err := w.FetchOp(ctx, tensor.Of(old), one, comm.Sum, comm.Target{Rank: 0, Offset: 10}); err != nil {
			return err
		}
		if tickets[old[0]] {
			return fmt.Errorf("ticket %d twice", old[0])
		}
		tickets[old[0]] = true
		for { // take the lock
			if err := w.CompareAndSwap(ctx, tensor.Of(old), tensor.Of([]int64{0}), tensor.Of([]int64{int64(me + 1)}),
				comm.Target{Rank: 0, Offset: 11}); err != nil {
				return err
			}
			if old[0] == 0 {
				break
			}
		}
		if err := w.CompareAndSwap(ctx, tensor.Of(old), tensor.Of([]int64{int64(me + 1)}), tensor.Of([]int64{0}),
			comm.Target{Rank: 0, Offset: 11}); err != nil {
			return err
		}
		if old[0] != int64(me+1) {
			return fmt.Errorf("the lock held by rank %d reads %d", me, old[0])
		}
	}
	if err := w.Fence(ctx, -1); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if me == 0 {
		for i := range 3 {
			if want := int64((i + 1) * 50 * n); local[i] != want {
				return fmt.Errorf("accumulated %d at %d, want %d", local[i], i, want)
			}
		}
		if local[10] != int64(50*n) {
			return fmt.Errorf("%d tickets, want %d", local[10], 50*n)
		}
	}
	// Mapped memory is the very memory.
	if w.Access(right) == comm.Unified {
		m, err := w.Map(right)
		if err != nil {
			return err
		}
		if m.NumEl() != size {
			return fmt.Errorf("mapped %d elements", m.NumEl())
		}
		if err := m.SetAt(int64(me+77), size-1); err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if w.Access(left) == comm.Unified && local[size-1] != int64(left+77) {
			return fmt.Errorf("store through a mapping: %d", local[size-1])
		}
	} else {
		if _, err := w.Map(right); !errors.Is(err, comm.ErrUnsupported) {
			return fmt.Errorf("mapping separate memory gives %v", err)
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	// What's wrong is refused.
	for what, err := range map[string]error{
		"beyond the end": w.Put(ctx, tensor.Of(got), comm.Target{Rank: right, Offset: size - 10}),
		"other dtype":    w.Put(ctx, tensor.Of([]float64{1}), comm.Target{Rank: right}),
		"no such rank":   w.Get(ctx, one, comm.Target{Rank: n}),
		"negative":       w.Get(ctx, one, comm.Target{Rank: 0, Offset: -1}),
		"no such slot":   w.Signal(ctx, right, comm.SignalSlots),
	} {
		if !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("%s gives %v", what, err)
		}
	}
	if err := w.WaitSignal(ctx, right, 5, comm.Timeout(20*time.Millisecond)); !errors.Is(err, comm.ErrTimeout) {
		return fmt.Errorf("a signal that never comes gives %v", err)
	}
	if err := w.Close(ctx); err != nil {
		return err
	}
	if err := w.Fence(ctx, -1); !errors.Is(err, comm.ErrFinalized) {
		return fmt.Errorf("a closed window gives %v", err)
	}
	return nil
}
