package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// described is what a rank takes a collective for: the fields that ranks compare.
type described struct {
	kind      comm.Kind
	dtype     dtype.DType
	count     int
	root      int
	reduce    comm.Reduction
	uneven    bool
	algorithm string
}

// call runs the collective as this rank takes it.
func (d described) call(ctx context.Context, c *comm.Comm) error {
	row := d.kind.Operation()
	op := &backend.Op{Kind: d.kind, Ctx: ctx, Root: d.root % c.Size(), Reduce: d.reduce}
	counts := make([]int, c.Size())
	total := 0
	for r := range counts {
		counts[r] = d.count
		if d.uneven {
			counts[r] += r + 1
		}
		total += counts[r]
	}
	side := func(s backend.Side, part int) (one *tensor.Tensor, list []*tensor.Tensor) {
		switch s {
		case backend.Part:
			one = tensor.Must(tensor.Zeros(d.dtype, part))
		case backend.Whole:
			one = tensor.Must(tensor.Zeros(d.dtype, total))
		case backend.List:
			for _, n := range counts {
				list = append(list, tensor.Must(tensor.Zeros(d.dtype, n)))
			}
		}
		return one, list
	}
	part := counts[c.Rank()]
	op.In, op.Ins = side(row.In, part)
	op.Out, op.Outs = side(row.Out, part)
	if row.Splits() {
		op.InSplits, op.OutSplits = counts, counts
	}
	if d.algorithm != "" {
		op.Hints = map[string]string{"algorithm": d.algorithm}
	}
	return c.Submit(op, nil)
}

// differ returns, by name, what one rank may take the collective for that the others call as d.
func (d described) differ(kinds []comm.Kind) map[string]described {
	row := d.kind.Operation()
	all := map[string]described{}
	add := func(name string, change func(x *described)) {
		x := d
		change(&x)
		all[name] = x
	}
	for _, k := range kinds {
		if k != d.kind {
			add(k.String(), func(x *described) { x.kind = k })
		}
	}
	if row.In != backend.Nothing || row.Out != backend.Nothing {
		add("dtype", func(x *described) { x.dtype = dtype.Float16 })
		add("count", func(x *described) { x.count++ })
		add("much", func(x *described) { x.count = 100_000 })
	}
	if row.Root {
		add("root", func(x *described) { x.root++ })
	}
	if row.Reduces {
		add("reduction", func(x *described) { x.reduce = comm.Max })
	}
	if row.Uneven {
		add("sizes", func(x *described) { x.uneven = true })
	}
	if d.kind == backend.AllReduce {
		add("algorithm", func(x *described) { x.algorithm = "ring" })
	}
	return all
}

// TestMismatchedFields has the last rank take a collective for another one: each collective and each field of its
// description, on every fabric. Every rank gets the mismatch from it, or from the operation after it, which waits for
// all.
func TestMismatchedFields(t *testing.T) {
	kinds := testutil.Pick([]comm.Kind{backend.Broadcast, backend.Gather}, backend.Collectives())
	others := testutil.Pick([]comm.Kind{backend.Barrier}, []comm.Kind{backend.Barrier, backend.Gather, backend.Broadcast})
	next := map[string]func(context.Context, *comm.Comm) error{
		"all-reduce": func(ctx context.Context, c *comm.Comm) error { return c.AllReduce(ctx, zeros(8), comm.Sum) },
		"barrier":    func(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx) },
	}
	for _, fabric := range []string{"mem", "shm", "tcp", "mixed"} {
		for size := range testutil.Pick(1, 2) {
			size += 2
			open := over(fabric)
			if fabric == "mixed" {
				if size == 2 {
					continue
				}
				open = mixed
			}
			for _, kind := range kinds {
				d := described{kind: kind, dtype: dtype.Float32, count: 8, reduce: comm.Sum}
				for field, other := range d.differ(others) {
					for after, next := range next {
						name := fmt.Sprintf("%s/%d ranks/%v/%s/%s", fabric, size, kind, field, after)
						t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
							t.Parallel()
							comms := open(t, size)
							each(t, comms, func(ctx context.Context, c *comm.Comm) error {
								if err := c.SetTimeout(10 * time.Second); err != nil {
									return err
								}
								mine := d
								if c.Rank() == size-1 {
									mine = other
								}
								err := mine.call(ctx, c)
								if err == nil {
									err = next(ctx, c)
								}
								if !errors.Is(err, comm.ErrMismatch) {
									return fmt.Errorf("it should be a mismatch: %v", err)
								}
								c.Finalize(ctx)
								return nil
							})
						})
					}
				}
			}
		}
	}
}
