package commtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// Batches runs all collectives as batches, in all ways, and batches that are refused as a whole.
func Batches(t *testing.T, cfg Config) {
	for _, n := range cfg.worlds() {
		w := cfg.open(t, n)
		w.each(func(ctx context.Context, c *comm.Comm) error {
			if c.Capabilities().NoOp {
				return nil
			}
			m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
			for _, way := range cfg.ways(c) {
				for _, dt := range []dtype.DType{dtype.Float32, dtype.Int64} {
					if err := every(ctx, c, m, way, dt); err != nil {
						return fmt.Errorf("%s: %w", way.name, err)
					}
				}
			}
			return refusedBatches(ctx, c, m)
		})
	}
}

// every runs one batch of all collectives, some of them twice.
func every(ctx context.Context, c *comm.Comm, m *maker, w way, dt dtype.DType) error {
	b := c.Batch()
	var verify []func(ctx context.Context) error
	for i, kind := range backend.Collectives() {
		for _, count := range []int{0, 5, 1027} {
			x := cell{kind: kind, dt: dt, count: count, root: i % c.Size(), red: comm.Sum, into: count == 5}
			op, f := x.prepare(c, m)
			b.Add(op)
			verify = append(verify, f)
		}
	}
	b.Add(&comm.Op{Kind: backend.Barrier})
	if err := w.run(ctx, c, func(opts ...comm.Option) error { return b.Issue(ctx, opts...) }); err != nil {
		return err
	}
	if b.Len() != 0 {
		return fmt.Errorf("%d operations are left in a batch that was issued", b.Len())
	}
	for i, f := range verify {
		if err := f(ctx); err != nil {
			return fmt.Errorf("operation %d of a batch: %w", i, err)
		}
	}
	return nil
}

// refusedBatches are those that have something invalid in them, of which nothing is carried out on any rank.
func refusedBatches(ctx context.Context, c *comm.Comm, m *maker) error {
	one := func(int) float64 { return 1 }
	x, y := m.of(dtype.Float32, 100, one), m.of(dtype.Float32, 100, one)
	good := comm.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: comm.Sum}
	for name, op := range map[string]*comm.Op{
		"no tensor":      {Kind: backend.AllReduce, Reduce: comm.Sum},
		"no such root":   {Kind: backend.Broadcast, Out: y, Root: c.Size()},
		"no such kind":   {Kind: 250},
		"a message":      {Kind: backend.Send, In: y, Peer: c.Rank()},
		"another length": {Kind: backend.AllReduce, In: y, Out: m.of(dtype.Float32, 99, one), Reduce: comm.Sum},
	} {
		for _, async := range []bool{false, true} {
			b := c.Batch()
			b.Add(&good)
			b.Add(op)
			var opts []comm.Option
			if async {
				opts = append(opts, comm.Async(new(comm.Work)))
			}
			if err := b.Issue(ctx, opts...); !errors.Is(err, comm.ErrInvalidArgument) || b.Len() != 2 {
				return fmt.Errorf("a batch with %s gives %w, and has %d operations", name, err, b.Len())
			}
		}
	}
	if err := synchronized(ctx, c, nil); err != nil {
		return err
	}
	if err := check(ctx, "a tensor of batches that were refused", x, one); err != nil {
		return err
	}
	b := c.Batch()
	b.Add(&good)
	if err := synchronized(ctx, c, b.Issue(ctx)); err != nil {
		return err
	}
	return check(ctx, "a batch after refused ones", x, func(int) float64 { return float64(c.Size()) })
}
