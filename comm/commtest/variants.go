package commtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// InPlace runs the operations whose input may be a part of their output, or the
// other way round, and mixes ranks that do so with ranks that don't.
func InPlace(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if c.Capabilities().NoOp {
				return nil
			}
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			me := c.Rank()
			for _, count := range []int{1, 5, 1027, 70_001} {
				for mode := range 3 { // no rank, all ranks, odd ranks in place
					in := mode == 1 || mode == 2 && me%2 == 1
					dt := dtype.Float32
					v := func(r, i int) float64 { return value(comm.Sum, dt, r, i) }
					sum := func(i int) float64 {
						x := 0.0
						for r := range n {
							x += v(r, i)
						}
						return x
					}
					out := m.poisoned(dt, n*count)
					block := tensor.Must(out.Narrow(0, me*count, count))
					src := m.of(dt, count, func(i int) float64 { return v(me, i) })
					if in {
						if err := tensor.Copy(ctx, block, src); err != nil {
							return err
						}
						src = block
					}
					if err := c.AllGatherSingle(ctx, out, src); err != nil {
						return err
					}
					if err := check(ctx, "all_gather_single", out, func(i int) float64 { return v(i/count, i%count) }); err != nil {
						return fmt.Errorf("count %d, mode %d: %w", count, mode, err)
					}
					whole := m.of(dt, n*count, func(i int) float64 { return v(me, i) })
					dst := m.poisoned(dt, count)
					if in {
						dst = tensor.Must(whole.Narrow(0, me*count, count))
					}
					if err := c.ReduceScatterSingle(ctx, dst, whole, comm.Sum); err != nil {
						return err
					}
					if err := check(ctx, "reduce_scatter_single", dst, func(i int) float64 { return sum(me*count + i) }); err != nil {
						return fmt.Errorf("count %d, mode %d: %w", count, mode, err)
					}
					x := cell{kind: backend.AllReduce, dt: dt, count: count, red: comm.Sum, into: !in}
					if err := x.exec(ctx, c, m); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

// Algorithms forces every algorithm of every collective by hint and compares
// its results with the definition.
func Algorithms(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if c.Capabilities().Name != "native" {
				return nil
			}
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			for _, collective := range plan.Collectives() {
				kind := plainest(collective)
				for _, a := range plan.Algorithms(collective) {
					for _, count := range []int{0, 1, 1027, 40_000} {
						x := cell{kind: kind, dt: dtype.Float32, count: count, root: n / 2, red: comm.Sum, algorithm: a.Name}
						if err := x.exec(ctx, c, m); err != nil && !errors.Is(err, comm.ErrInvalidArgument) {
							return fmt.Errorf("algorithm %s: %w", a.Name, err)
						}
					}
				}
			}
			return nil
		})
	}
}

// plainest returns the operation of a collective that has the fewest tensors.
func plainest(c plan.Collective) (best backend.Kind) {
	for _, k := range backend.Collectives() {
		if k.Operation().Family.String() == c.String() && (best == 0 || lists(best) && !lists(k)) {
			best = k
		}
	}
	return best
}

func lists(k backend.Kind) bool {
	return k.Operation().In == backend.List || k.Operation().Out == backend.List
}

// PointToPoint tests sends and receives: order, tags, any source, batches, sizes, self.
func PointToPoint(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			caps := c.Capabilities()
			if caps.NoOp {
				return nil
			}
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			me := c.Rank()
			right, left := (me+1)%n, (me+n-1)%n
			dt := dtype.Int32
			v := func(r, k int) func(int) float64 {
				return func(i int) float64 { return float64(r*1000 + k*10 + i%7) }
			}
			for _, size := range []int{0, 1, 5, 1027, 100_003} {
				// A ring of asynchronous sends, in order.
				var works [4]comm.Work
				for k := range works {
					if err := c.Send(ctx, m.of(dt, size, v(me, k)), right, comm.Async(&works[k])); err != nil {
						return err
					}
				}
				for k := range works {
					got := m.poisoned(dt, size)
					if err := c.Recv(ctx, got, left); err != nil {
						return err
					}
					if err := check(ctx, "ring", got, v(left, k)); err != nil {
						return err
					}
				}
				for k := range works {
					if err := works[k].Wait(ctx); err != nil {
						return err
					}
				}
				// All ranks to all ranks in one batch, the tags in reverse.
				if caps.Tags {
					b := c.Batch()
					got := make([]*tensor.Tensor, n*2)
					for r := range n {
						for tag := range 2 {
							b.Send(m.of(dt, size, v(me, tag)), r, comm.Tag(tag))
						}
					}
					for r := range n {
						for tag := 1; tag >= 0; tag-- {
							got[2*r+tag] = m.poisoned(dt, size)
							b.Recv(got[2*r+tag], r, comm.Tag(tag))
						}
					}
					if err := b.Issue(ctx); err != nil {
						return err
					}
					for i, x := range got {
						if err := check(ctx, "batch", x, v(i/2, i%2)); err != nil {
							return err
						}
					}
				}
				// Rank 0 takes one from each, as they come.
				if caps.AnySource {
					if me == 0 {
						seen := make([]bool, n)
						var work comm.Work
						if err := c.Send(ctx, m.of(dt, size, v(0, 3)), 0, comm.Tag(9), comm.Async(&work)); err != nil {
							return err
						}
						for range n {
							got, from := m.poisoned(dt, size), -5
							if err := synchronized(ctx, c, c.Recv(ctx, got, comm.AnySource, comm.Tag(9), comm.From(&from))); err != nil {
								return err
							}
							if from < 0 || from >= n || seen[from] {
								return fmt.Errorf("received from rank %d again or from nowhere", from)
							}
							seen[from] = true
							if err := check(ctx, "any source", got, v(from, 3)); err != nil {
								return err
							}
						}
						if err := work.Wait(ctx); err != nil {
							return err
						}
					} else if err := c.Send(ctx, m.of(dt, size, v(me, 3)), 0, comm.Tag(9)); err != nil {
						return err
					}
				}
			}
			if !caps.Tags || caps.Foreign { // those without are libraries' that look at no description
				return synchronized(ctx, c, c.Barrier(ctx))
			}
			// Sizes and dtypes must agree; the communicator survives.
			if n > 1 && me == 0 {
				if err := c.Send(ctx, m.of(dt, 3, v(0, 0)), 1); err != nil {
					return err
				}
				if err := c.Send(ctx, m.of(dtype.Float32, 4, v(0, 0)), 1); err != nil {
					return err
				}
			}
			if n > 1 && me == 1 {
				for range 2 {
					if err := synchronized(ctx, c, c.Recv(ctx, m.poisoned(dt, 4), 0)); !errors.Is(err, comm.ErrMismatch) {
						return fmt.Errorf("receive of another size or dtype gives %v", err)
					}
				}
			}
			return synchronized(ctx, c, c.Barrier(ctx))
		})
	}
}
