package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// history runs a random sequence of reductions, gathers and exchanges of random
// floats with the given algorithm where it applies, and returns the bytes of
// every result of every rank.
func history(t *testing.T, fabric, algorithm string, seed uint64, n int) [][]byte {
	comms := over(fabric)(t, n)
	out := make([][]byte, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx := context.Background()
			steps := rand.New(rand.NewPCG(seed, 0))
			values := rand.New(rand.NewPCG(seed, uint64(r)+1))
			keep := func(x *tensor.Tensor) error {
				b, err := x.Bytes()
				out[r] = append(out[r], b...)
				return err
			}
			errs[r] = func() error {
				defer c.Finalize(ctx)
				for i := range 40 {
					count := []int{1, 17, 1000, 30_000, 200_000}[steps.IntN(5)]
					shared := steps.IntN(2) == 0
					dt := []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16, dtype.Float16}[steps.IntN(4)]
					red := []comm.Reduction{comm.Sum, comm.Product, comm.Avg, comm.Max, comm.PremulSum(0.3)}[steps.IntN(5)]
					make1 := func(k int) (*tensor.Tensor, error) {
						x, err := tensor.Empty(dt, k)
						if shared {
							x, err = c.Empty(dt, k)
						}
						if err != nil {
							return nil, err
						}
						v := make([]float64, k)
						for i := range v {
							v[i] = math.Ldexp(values.Float64()-0.5, values.IntN(8))
						}
						return x, x.CopyFrom(tensor.Of(v))
					}
					kind := []plan.Collective{plan.AllReduce, plan.ReduceScatter, plan.AllGather, plan.Reduce}[steps.IntN(4)]
					// Where the algorithm doesn't exist, a two-sided one that all fabrics have takes its place.
					name := algorithm
					if _, ok := plan.Lookup(kind, name); !ok {
						name = map[plan.Collective]string{plan.AllReduce: "ring", plan.ReduceScatter: "ring", plan.AllGather: "ring",
							plan.Reduce: "binomial"}[kind]
					}
					opts := []comm.Option{comm.Algorithm(name)}
					x, err := make1(count)
					if err != nil {
						return err
					}
					switch kind {
					case plan.AllReduce:
						err = c.AllReduce(ctx, x, red, opts...)
					case plan.Reduce:
						err = c.Reduce(ctx, x, n-1, red, opts...)
					case plan.AllGather:
						y, e := make1(n * count)
						if e != nil {
							return e
						}
						err = c.AllGatherSingle(ctx, y, x, opts...)
						x = y
					case plan.ReduceScatter:
						y, e := make1(n * count)
						if e != nil {
							return e
						}
						err = c.ReduceScatterSingle(ctx, x, y, red, opts...)
					}
					if err != nil {
						return fmt.Errorf("step %d, %v: %w", i, kind, err)
					}
					if err := keep(x); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("%s, %s, rank %d: %v", fabric, algorithm, r, err)
		}
	}
	return out
}

// The same algorithm gives the same bits, whatever carries the bytes.
func TestSameBitsOnEveryFabric(t *testing.T) {
	testutil.SkipIfShort(t)
	for _, algorithm := range []string{"ring", "doubling", "rabenseifner", "halving", "binomial"} {
		for _, n := range []int{2, 3, 4} {
			want := history(t, "mem", algorithm, 11, n)
			for _, fabric := range []string{"shm", "tcp"} {
				got := history(t, fabric, algorithm, 11, n)
				for r := range got {
					if !bytes.Equal(got[r], want[r]) {
						t.Errorf("%s, world of %d: rank %d has other bits on %s than on mem", algorithm, n, r, fabric)
					}
				}
			}
		}
	}
}

// On one host every all-reduce adds in the order of the ranks, also where a split has given them another one than they
// have on the host.
func TestRankOrder(t *testing.T) {
	parts := []float32{1e8, -1e8, 1} // 1 in this order, 0 in others
	for _, fabric := range []string{"mem", "shm"} {
		each(t, over(fabric)(t, 3), func(ctx context.Context, c *comm.Comm) error {
			turned, err := c.Split(ctx, []int{2, 0, 1})
			if err != nil {
				return err
			}
			for _, n := range []int{1, 3, 100, 1000, 5000, 100_000} {
				for _, shared := range []bool{false, true} {
					x, err := tensor.Empty(dtype.Float32, n)
					if shared {
						x, err = c.Empty(dtype.Float32, n)
					}
					if err != nil {
						return err
					}
					for again := range 3 { // a repeated one takes other paths
						v, err := tensor.Slice[float32](x)
						if err != nil {
							return err
						}
						for i := range v {
							v[i] = parts[turned.Rank()]
						}
						if err := turned.AllReduce(ctx, x, comm.Sum); err != nil {
							return err
						}
						for i := range v {
							if v[i] != 1 {
								return fmt.Errorf("%s, %d elements, shared %v, time %d: element %d is %v", fabric, n, shared, again, i, v[i])
							}
						}
					}
				}
			}
			return errors.Join(turned.Finalize(ctx), c.Finalize(ctx))
		})
	}
}
