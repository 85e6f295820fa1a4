package accl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/short"
	"github.com/chorus-comms/chorus/tensor"
)

// step is an operation of a random program, the same on every rank.
type step struct {
	kind, root, count int
	dt                dtype.DType
	red               comm.Reduction
	seed              uint64
}

var types = []dtype.DType{dtype.Float16, dtype.Float32, dtype.Float64, dtype.Int32, dtype.Int64, dtype.Int8,
	dtype.BFloat16}

func program(seed uint64, n int) []step {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	steps := make([]step, 12)
	for i := range steps {
		steps[i] = step{kind: rng.IntN(8), root: rng.IntN(n), dt: types[rng.IntN(len(types))], seed: rng.Uint64(),
			red:   []comm.Reduction{comm.Sum, comm.Max, comm.Min}[rng.IntN(3)],
			count: []int{1, rng.IntN(20), rng.IntN(700), rng.IntN(20_000)}[rng.IntN(4)]}
	}
	return steps
}

// run carries a step out and returns the result; nil where there is none. Numbers have fractions, so that sums round.
func (s step) run(ctx context.Context, c *comm.Comm) (*tensor.Tensor, error) {
	n, me := c.Size(), c.Rank()
	of := func(count int) *tensor.Tensor {
		rng := rand.New(rand.NewPCG(s.seed, uint64(me)))
		v := make([]float64, count)
		for i := range v {
			v[i] = rng.NormFloat64() * 10
		}
		t := tensor.Must(tensor.Empty(s.dt, count))
		if err := tensor.Copy(ctx, t, tensor.Of(v)); err != nil {
			panic(err)
		}
		return t
	}
	empty := func(count int) *tensor.Tensor { return tensor.Must(tensor.Zeros(s.dt, count)) }
	switch in := of(s.count); s.kind {
	case 0:
		return in, c.Broadcast(ctx, in, s.root)
	case 1:
		return in, c.AllReduce(ctx, in, s.red)
	case 2:
		err := c.Reduce(ctx, in, s.root, s.red)
		if me != s.root {
			in = nil
		}
		return in, err
	case 3:
		out := empty(n * s.count)
		return out, c.AllGatherSingle(ctx, out, in)
	case 4:
		out := empty(s.count)
		return out, c.ReduceScatterSingle(ctx, out, of(n*s.count), s.red)
	case 5:
		out := empty(n * s.count)
		return out, c.AllToAllSingle(ctx, out, of(n*s.count))
	case 6:
		var out *tensor.Tensor
		if me == s.root {
			out = empty(n * s.count)
		}
		return out, c.GatherSingle(ctx, out, in, s.root)
	}
	var ins []*tensor.Tensor
	if me == s.root {
		all := of(n * s.count)
		for r := range n {
			ins = append(ins, tensor.Must(all.Narrow(0, r*s.count, s.count)))
		}
	}
	out := empty(s.count)
	return out, c.Scatter(ctx, out, ins, s.root)
}

// rounds reports whether the step's result depends on the order of the ranks.
func (s step) rounds() bool {
	return (s.kind == 1 || s.kind == 2 || s.kind == 4) && s.red.Kind == comm.Sum.Kind && s.dt.IsFloating()
}

// bound is how far two orders of a sum over n ranks may be apart, whose terms are below 60.
func (s step) bound(n int) float64 {
	digits := map[dtype.DType]float64{dtype.Float16: 11, dtype.BFloat16: 8, dtype.Float32: 24, dtype.Float64: 53}[s.dt]
	return float64(n*n) * 60 * math.Exp2(-digits)
}

// TestRandomPrograms compares the results of random programs with those of native: bit by bit, but for sums that round,
// which are equal on all ranks, and near.
func TestRandomPrograms(t *testing.T) {
	programs := short.Of(12, 60)
	if commtest.Long() {
		programs = 500
	}
	hints := []map[string]string{nil, ways["rendezvous"], ways["udp"], ways["links"]}
	for seed := range programs {
		n := 1 + seed%5
		own, err := openWorld(Name, n, hints[seed%len(hints)])
		other, err2 := openWorld("native", n, nil)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		steps := program(uint64(seed), n)
		results := [2][][]*tensor.Tensor{}
		for b, comms := range [][]*comm.Comm{own, other} {
			results[b] = make([][]*tensor.Tensor, n)
			each(t, comms, func(ctx context.Context, c *comm.Comm) error {
				for i, s := range steps {
					x, err := s.run(ctx, c)
					if err != nil {
						return fmt.Errorf("program %d, step %d, %+v: %w", seed, i, s, err)
					}
					results[b][c.Rank()] = append(results[b][c.Rank()], x)
				}
				return nil
			})
		}
		if t.Failed() {
			return
		}
		for i, s := range steps {
			for r := range n {
				got, want := results[0][r][i], results[1][r][i]
				bound := 0.0
				if s.rounds() {
					bound = s.bound(n)
				}
				if err := near(got, want, bound); err != nil {
					t.Fatalf("program %d, step %d, %+v, rank %d of %d: %v", seed, i, s, r, n, err)
				}
				if s.kind == 1 {
					if err := near(got, results[0][0][i], 0); err != nil {
						t.Fatalf("program %d, step %d, %+v: ranks 0 and %d differ: %v", seed, i, s, r, err)
					}
				}
			}
		}
	}
}

func near(a, b *tensor.Tensor, bound float64) error {
	if a == nil || b == nil {
		if a != b {
			return errors.New("one has a result, one hasn't")
		}
		return nil
	}
	for i := range a.NumEl() {
		x, y := a.At(i), b.At(i)
		if math.Float64bits(x) != math.Float64bits(y) && (bound == 0 || !(math.Abs(x-y) <= bound)) {
			return fmt.Errorf("element %d is %v and %v", i, x, y)
		}
	}
	return nil
}
