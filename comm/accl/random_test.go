package accl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
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

// TestRandomPrograms compares the results of random programs, 500 in the longest run, with those of native: bit by bit,
// but for sums that round, which are equal on all ranks, and near.
func TestRandomPrograms(t *testing.T) {
	all, count := plain(), testutil.Pick(12, 120)
	if commtest.Long() {
		count = 500
	}
	for seed := range count {
		n := sizes[seed%len(sizes)]
		own, err := openWorld(Name, n, all[seed%len(all)].hints)
		other, err2 := openWorld("native", n, nil)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		results := make([][]*tensor.Tensor, n)
		comms := make([][2]*comm.Comm, n)
		for r := range n {
			comms[r] = [2]*comm.Comm{own[r], other[r]}
		}
		together(t, comms, func(ctx context.Context, c [2]*comm.Comm) (err error) {
			results[c[0].Rank()], err = compare(ctx, seed, c[0], c[1])
			return err
		})
		if t.Failed() {
			return
		}
		for i, s := range program(uint64(seed), n) {
			for r := range n {
				if s.kind != 1 {
					continue
				}
				if err := near(results[r][i], results[0][i], 0); err != nil {
					t.Fatalf("program %d, step %d, %+v: ranks 0 and %d differ: %v", seed, i, s, r, err)
				}
			}
		}
	}
}

// plain are the ways that lose no bits.
func plain() []way { return slices.DeleteFunc(ways(), func(w way) bool { return w.compressed }) }

// together runs f for each rank's pair of communicators, and finalizes them.
func together(t *testing.T, comms [][2]*comm.Comm, f func(ctx context.Context, c [2]*comm.Comm) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			err := f(ctx, c)
			for _, x := range c {
				err = errors.Join(err, x.Finalize(ctx))
			}
			if err != nil {
				t.Errorf("rank %d: %v", c[0].Rank(), err)
			}
		})
	}
	wg.Wait()
}

// compare runs a program on both communicators of a rank, and returns the results of the first.
func compare(ctx context.Context, seed int, own, other *comm.Comm) (results []*tensor.Tensor, err error) {
	for i, s := range program(uint64(seed), own.Size()) {
		got, err := s.run(ctx, own)
		want, err2 := s.run(ctx, other)
		bound := 0.0
		if s.rounds() {
			bound = s.bound(own.Size())
		}
		if err := cmp.Or(err, err2); err != nil {
			return nil, fmt.Errorf("program %d, step %d, %+v: %w", seed, i, s, err)
		}
		if err := near(got, want, bound); err != nil {
			return nil, fmt.Errorf("program %d, step %d, %+v: %w", seed, i, s, err)
		}
		results = append(results, got)
	}
	return results, nil
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
