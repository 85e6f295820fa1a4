package commtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// cell is one case of the table.
type cell struct {
	kind      backend.Kind
	dt        dtype.DType
	red       comm.Reduction
	count     int
	root      int
	algorithm string
	into      bool // the output is another tensor, if it may be the input
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

// exec runs one cell on one rank and compares the result with its definition. An operation that fails on a stream, for
// which a hint may be the reason, is over when it returns.
func (x cell) exec(ctx context.Context, c *comm.Comm, m *maker) error {
	err := x.run(ctx, c, m)
	if err != nil || x.algorithm != "" {
		err = errors.Join(err, synchronized(ctx, c, nil))
	}
	return err
}

func (x cell) run(ctx context.Context, c *comm.Comm, m *maker) error {
	op, verify := x.prepare(c, m)
	if err := x.call(ctx, c, op); err != nil {
		return fmt.Errorf("%v: %w", x, err)
	}
	return verify(ctx)
}

// prepare makes one rank's operation of a cell, and the comparison of what it gives with its definition.
func (x cell) prepare(c *comm.Comm, m *maker) (op *comm.Op, verify func(ctx context.Context) error) {
	n, me, row := c.Size(), c.Rank(), x.kind.Operation()
	size := func(from, to int) int {
		switch {
		case !row.Uneven:
			return x.count
		case row.In >= backend.Whole && row.Out >= backend.Whole:
			return uneven(x.count, from+to)
		}
		return uneven(x.count, from)
	}
	v := func(rank, i int) float64 { return value(x.red, x.dt, rank, i) }
	// A rank's inputs are blocks of one vector, which begin where starts says.
	starts := func(rank int) []int {
		ins, _ := row.Blocks(rank, n, x.root, size)
		at := make([]int, len(ins)+1)
		for b, k := range ins {
			at[b+1] = at[b] + k
		}
		return at
	}
	op = &comm.Op{Kind: x.kind, Root: x.root, Reduce: x.red}
	ins, outs := row.Blocks(me, n, x.root, size)
	at := starts(me)
	input := func(from, to int) *tensor.Tensor {
		return m.of(x.dt, to-from, func(i int) float64 { return v(me, from+i) })
	}
	switch {
	case ins == nil:
	case row.In == backend.List:
		for b := range ins {
			op.Ins = append(op.Ins, input(at[b], at[b+1]))
		}
	default:
		op.In = input(0, at[len(ins)])
	}
	total := 0
	for _, k := range outs {
		total += k
	}
	switch {
	case outs == nil:
	case row.Out == backend.List:
		for _, k := range outs {
			op.Outs = append(op.Outs, m.poisoned(x.dt, k))
		}
	case row.In == backend.Nothing && me == x.root:
		op.Out = input(0, total)
	case row.Into() && !x.into:
		op.Out = op.In
	default:
		op.Out = m.poisoned(x.dt, total)
	}
	if row.Splits() {
		op.InSplits, op.OutSplits = ins, outs
	}
	verify = func(ctx context.Context) error {
		end := 0
		for b, k := range outs {
			out := op.Out
			if row.Out == backend.List {
				out = op.Outs[b]
			} else if row.Out == backend.Whole {
				out = tensor.Must(out.Narrow(0, end, k))
			}
			end += k
			first, last, block := row.Sources(me, n, x.root, b)
			from := 0 // every rank that is combined has its blocks in the same places
			if block > 0 {
				from = starts(first)[block]
			}
			xs := make([]float64, last-first)
			err := check(ctx, fmt.Sprintf("output %d", b), out, func(i int) float64 {
				for r := range xs {
					xs[r] = v(first+r, from+i)
				}
				if row.Reduces {
					return combine(x.red, x.dt, xs)
				}
				return xs[0]
			})
			if err != nil {
				return fmt.Errorf("%v: %w", x, err)
			}
		}
		ins, at := op.Ins, at
		if op.In != nil && op.In != op.Out {
			ins, at = []*tensor.Tensor{op.In}, []int{0}
		}
		for b, in := range ins {
			if err := check(ctx, "input after the operation", in, func(i int) float64 { return v(me, at[b]+i) }); err != nil {
				return fmt.Errorf("%v: %w", x, err)
			}
		}
		return nil
	}
	return op, verify
}

// call calls the method of Comm that has the operation's name, with the arguments that the table lists. Their order
// is outputs, inputs, splits, root and reduction. A reduction that may be in place takes one tensor, and Into for a
// separate output.
func (x cell) call(ctx context.Context, c *comm.Comm, op *comm.Op) error {
	row, name := op.Kind.Operation(), ""
	for word := range strings.SplitSeq(op.Kind.String(), "_") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	method := reflect.ValueOf(c).MethodByName(name)
	if !method.IsValid() {
		return fmt.Errorf("there is no method %s", name)
	}
	args := []reflect.Value{reflect.ValueOf(ctx)}
	add := func(v any) { args = append(args, reflect.ValueOf(v)) }
	side := func(s backend.Side, one *tensor.Tensor, list []*tensor.Tensor) {
		switch s {
		case backend.Nothing:
		case backend.List:
			add(list)
		default:
			add(one)
		}
	}
	if !row.Into() || !row.Reduces {
		side(row.Out, op.Out, op.Outs)
	}
	side(row.In, op.In, op.Ins)
	if row.Splits() {
		add(op.OutSplits)
		add(op.InSplits)
	}
	if row.Root {
		add(op.Root)
	}
	if row.Reduces {
		add(op.Reduce)
	}
	if row.Into() && op.Out != nil && op.Out != op.In {
		add(comm.Into(op.Out))
	}
	if x.algorithm != "" {
		add(comm.Algorithm(x.algorithm))
	}
	err, _ := method.Call(args)[0].Interface().(error)
	return err
}

// reductions returns what is defined on dt, and what c has of it.
func reductions(c *comm.Comm, dt dtype.DType) []comm.Reduction {
	var rs []comm.Reduction
	has := c.Capabilities().Reduces
	for _, r := range []comm.Reduction{comm.Sum, comm.Product, comm.Min, comm.Max, comm.BAnd, comm.BOr, comm.BXor,
		comm.Avg, comm.PremulSum(2)} {
		if r.Kind.Defined(dt) && (has == nil || has(r.Kind, dt)) {
			rs = append(rs, r)
		}
	}
	return rs
}

// Collectives runs every collective over dtype, size, reduction and world, on ordinary and on shared memory; in a brief
// run, every two of them.
func Collectives(t *testing.T, cfg Config) {
	counts := testutil.Pick([]int{0, 5, 1027}, []int{0, 1, 5, 1027})
	if cfg.long() {
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
				for i, kind := range backend.Collectives() {
					for d, dt := range dtype.All() {
						for j, count := range counts {
							tried := func(k int) bool { return !testutil.Short() || (i+d+j+k)%3 == 0 }
							var cells []cell
							if tried(0) {
								cells = append(cells, cell{kind: kind, dt: dt, count: count, root: (i + j) % n})
							}
							if kind.Operation().Reduces {
								cells = cells[:0]
								for k, r := range reductions(c, dt) {
									if !kind.Operation().Admits(r.Kind) || !tried(k) {
										continue
									}
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
			if cfg.long() {
				large = append(large, 1<<20, 3_000_001)
			}
			w.each(func(ctx context.Context, c *comm.Comm) error {
				if c.Capabilities().NoOp {
					return nil
				}
				m := &maker{ctx: ctx, c: c, shared: cfg.Shared}
				for i, kind := range backend.Collectives() {
					types := []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Int64}
					for _, dt := range testutil.Pick(types[i%3:i%3+1], types) {
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
