package commtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/short"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// cell is one case of the table.
type cell struct {
	kind  backend.Kind
	dt    dtype.DType
	red   comm.Reduction
	count int
	root  int
	opts  []comm.Option
	into  bool // AllReduce and Reduce into another tensor
}

func (x cell) String() string {
	s := fmt.Sprintf("%v %v x %d", x.kind, x.dt, x.count)
	if x.red.Kind != 0 {
		s += " " + x.red.String()
	}
	return s
}

// uneven is the block size of a rank in the V operations: some are empty.
func uneven(count, rank int) int { return count * ((rank + 1) % 3) / 2 }

// exec runs one cell on one rank and compares the result with its definition. What fails on a stream, for which a hint may
// be the reason, is over when it returns.
func (x cell) exec(ctx context.Context, c *comm.Comm, m *maker) error {
	err := x.run(ctx, c, m)
	if err != nil || len(x.opts) > 0 {
		err = errors.Join(err, settle(ctx, c, nil))
	}
	return err
}

func (x cell) run(ctx context.Context, c *comm.Comm, m *maker) error {
	n, me, dt, count := c.Size(), c.Rank(), x.dt, x.count
	v := func(rank, i int) float64 { return value(x.red, dt, rank, i) }
	reduced := func(i int) float64 {
		xs := make([]float64, n)
		for r := range xs {
			xs[r] = v(r, i)
		}
		return combine(x.red, dt, xs)
	}
	input := func(size int) *tensor.Tensor { return m.of(dt, size, func(i int) float64 { return v(me, i) }) }
	unchanged := func(t *tensor.Tensor) error {
		return check(ctx, "input after the operation", t, func(i int) float64 { return v(me, i) })
	}
	list := func(size func(r int) int) []*tensor.Tensor {
		ts := make([]*tensor.Tensor, n)
		for r := range ts {
			ts[r] = m.poisoned(dt, size(r))
		}
		return ts
	}
	// inputs are slices of the vector that input makes, each in memory of its own.
	inputs := func(size func(r int) int) []*tensor.Tensor {
		ts := make([]*tensor.Tensor, n)
		at := 0
		for r := range ts {
			start := at
			ts[r] = m.of(dt, size(r), func(i int) float64 { return v(me, start+i) })
			at += size(r)
		}
		return ts
	}
	even := func(int) int { return count }
	some := func(r int) int { return uneven(count, r) }
	before := func(size func(r int) int, r int) (at int) {
		for q := range r {
			at += size(q)
		}
		return at
	}
	all := func(ts []*tensor.Tensor, want func(r, i int) float64) error {
		for r, t := range ts {
			if err := check(ctx, fmt.Sprintf("output %d", r), t, func(i int) float64 { return want(r, i) }); err != nil {
				return err
			}
		}
		return nil
	}
	wrap := func(err error) error {
		if err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
		return nil
	}
	switch x.kind {
	case backend.Broadcast:
		t := m.poisoned(dt, count)
		if me == x.root {
			t = input(count)
		}
		if err := c.Broadcast(ctx, t, x.root, x.opts...); err != nil {
			return wrap(err)
		}
		return wrap(check(ctx, "output", t, func(i int) float64 { return v(x.root, i) }))
	case backend.AllReduce, backend.Reduce:
		t := input(count)
		out, opts := t, x.opts
		if x.into && (x.kind == backend.AllReduce || me == x.root) {
			out = m.poisoned(dt, count)
			opts = append(opts[:len(opts):len(opts)], comm.Into(out))
		}
		var err error
		if x.kind == backend.AllReduce {
			err = c.AllReduce(ctx, t, x.red, opts...)
		} else {
			err = c.Reduce(ctx, t, x.root, x.red, opts...)
		}
		if err == nil && (x.kind == backend.AllReduce || me == x.root) {
			err = check(ctx, "output", out, reduced)
		}
		if err == nil && (out != t || x.kind == backend.Reduce && me != x.root) {
			err = unchanged(t)
		}
		return wrap(err)
	case backend.AllGather, backend.AllGatherV:
		size := even
		if x.kind == backend.AllGatherV {
			size = some
		}
		t, outs := input(size(me)), list(size)
		var err error
		if x.kind == backend.AllGather {
			err = c.AllGather(ctx, outs, t, x.opts...)
		} else {
			err = c.AllGatherV(ctx, outs, t, x.opts...)
		}
		if err == nil {
			err = all(outs, v)
		}
		if err == nil {
			err = unchanged(t)
		}
		return wrap(err)
	case backend.AllGatherSingle:
		t, out := input(count), m.poisoned(dt, n*count)
		err := c.AllGatherSingle(ctx, out, t, x.opts...)
		if err == nil {
			err = check(ctx, "output", out, func(i int) float64 { return v(i/count, i%count) })
		}
		return wrap(err)
	case backend.ReduceScatterSingle:
		t, out := input(n*count), m.poisoned(dt, count)
		err := c.ReduceScatterSingle(ctx, out, t, x.red, x.opts...)
		if err == nil {
			err = check(ctx, "output", out, func(i int) float64 { return reduced(me*count + i) })
		}
		if err == nil {
			err = unchanged(t)
		}
		return wrap(err)
	case backend.ReduceScatter, backend.ReduceScatterV:
		size := even
		if x.kind == backend.ReduceScatterV {
			size = some
		}
		ins, out := inputs(size), m.poisoned(dt, size(me))
		var err error
		if x.kind == backend.ReduceScatter {
			err = c.ReduceScatter(ctx, out, ins, x.red, x.opts...)
		} else {
			err = c.ReduceScatterV(ctx, out, ins, x.red, x.opts...)
		}
		if err == nil {
			err = check(ctx, "output", out, func(i int) float64 { return reduced(before(size, me) + i) })
		}
		return wrap(err)
	case backend.AllToAllSingle:
		t, out := input(n*count), m.poisoned(dt, n*count)
		err := c.AllToAllSingle(ctx, out, t, x.opts...)
		if err == nil {
			err = check(ctx, "output", out, func(i int) float64 { return v(i/count, me*count+i%count) })
		}
		return wrap(err)
	case backend.AllToAll, backend.AllToAllVSingle:
		// Rank r sends uneven(count, r+s) elements to rank s.
		to := func(s int) int { return uneven(count, me+s) }
		ins, outs := inputs(to), list(to)
		want := func(r, i int) float64 { return v(r, before(func(s int) int { return uneven(count, r+s) }, me)+i) }
		if x.kind == backend.AllToAll {
			err := c.AllToAll(ctx, outs, ins, x.opts...)
			if err == nil {
				err = all(outs, want)
			}
			return wrap(err)
		}
		total := before(to, n)
		splits := make([]int, n)
		for s := range splits {
			splits[s] = to(s)
		}
		t, out := input(total), m.poisoned(dt, total)
		err := c.AllToAllVSingle(ctx, out, t, splits, splits, x.opts...)
		if err == nil {
			for r := range n {
				part := tensor.Must(out.Narrow(0, before(to, r), to(r)))
				if err = check(ctx, fmt.Sprintf("block %d", r), part, func(i int) float64 { return want(r, i) }); err != nil {
					break
				}
			}
		}
		return wrap(err)
	case backend.Barrier:
		return wrap(c.Barrier(ctx, x.opts...))
	case backend.Scatter:
		var ins []*tensor.Tensor
		if me == x.root {
			ins = inputs(even)
		}
		out := m.poisoned(dt, count)
		err := c.Scatter(ctx, out, ins, x.root, x.opts...)
		if err == nil {
			err = check(ctx, "output", out, func(i int) float64 { return v(x.root, me*count+i) })
		}
		return wrap(err)
	case backend.Gather:
		t := input(count)
		var outs []*tensor.Tensor
		if me == x.root {
			outs = list(even)
		}
		err := c.Gather(ctx, outs, t, x.root, x.opts...)
		if err == nil {
			err = all(outs, v)
		}
		return wrap(err)
	case backend.GatherSingle:
		t := input(count)
		var out *tensor.Tensor
		if me == x.root {
			out = m.poisoned(dt, n*count)
		}
		err := c.GatherSingle(ctx, out, t, x.root, x.opts...)
		if err == nil && me == x.root {
			err = check(ctx, "output", out, func(i int) float64 { return v(i/count, i%count) })
		}
		return wrap(err)
	}
	return fmt.Errorf("commtest: no cell for %v", x.kind)
}

// collectiveKinds are the operations that all ranks take part in.
func collectiveKinds() (kinds []backend.Kind) {
	for _, k := range backend.Kinds() {
		if !k.PointToPoint() {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func reduces(k backend.Kind) bool {
	switch k {
	case backend.AllReduce, backend.Reduce, backend.ReduceScatter, backend.ReduceScatterSingle, backend.ReduceScatterV:
		return true
	}
	return false
}

// reductions returns what is defined on dt.
func reductions(dt dtype.DType) []comm.Reduction {
	var rs []comm.Reduction
	for _, r := range []comm.Reduction{comm.Sum, comm.Product, comm.Min, comm.Max, comm.BAnd, comm.BOr, comm.BXor} {
		if kern.Supports(r.Kind.Kernel(), dt) {
			rs = append(rs, r)
		}
	}
	if dt != dtype.Bool {
		rs = append(rs, comm.Avg)
	}
	if dt.IsFloating() || dt.IsComplex() {
		rs = append(rs, comm.PremulSum(2))
	}
	return rs
}

// Collectives runs every collective over dtype, size and world, on ordinary and on shared memory.
func Collectives(t *testing.T, cfg Config) {
	counts := short.Of([]int{0, 5, 1027}, []int{0, 1, 5, 1027})
	if Long() {
		counts = append(counts, 4, 1024, 300_007)
	}
	for _, n := range cfg.worlds() {
		t.Run(fmt.Sprintf("world=%d", n), func(t *testing.T) {
			w := cfg.open(t, n)
			w.each(func(ctx context.Context, c *comm.Comm) error {
				if c.Capabilities().NoOp {
					return nil
				}
				m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
				for i, kind := range collectiveKinds() {
					for _, dt := range dtype.All() {
						for j, count := range counts {
							cells := []cell{{kind: kind, dt: dt, count: count, root: (i + j) % n}}
							if reduces(kind) {
								cells = cells[:0]
								for k, r := range reductions(dt) {
									cells = append(cells, cell{kind: kind, dt: dt, count: count, root: (i + j) % n, red: r, into: k%2 == 1})
								}
							}
							for _, x := range cells {
								if err := x.exec(ctx, c, m); err != nil {
									return err
								}
							}
						}
					}
				}
				return nil
			})
			large := []int{70_001}
			if Long() {
				large = append(large, 1<<20, 3_000_001)
			}
			w.each(func(ctx context.Context, c *comm.Comm) error {
				if c.Capabilities().NoOp {
					return nil
				}
				m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
				for _, kind := range collectiveKinds() {
					for _, dt := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Int64} {
						for _, count := range large {
							if err := (cell{kind: kind, dt: dt, count: count, root: n - 1, red: comm.Sum}).exec(ctx, c, m); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		})
	}
}
