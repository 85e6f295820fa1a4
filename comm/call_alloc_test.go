package comm_test

import (
	"context"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// lockstep runs f on rank 0 in the caller's goroutine while the other ranks do the
// same rounds in theirs, until the returned stop is called.
func lockstep(t testing.TB, comms []*comm.Comm, f func(c *comm.Comm, x *tensor.Tensor) error, shared bool,
	count int) (round func(), stop func()) {
	ctx := context.Background()
	var wg sync.WaitGroup
	flags := make([]*tensor.Tensor, len(comms))
	values := make([][]int32, len(comms))
	data := make([]*tensor.Tensor, len(comms))
	for r, c := range comms {
		values[r] = make([]int32, 1)
		flags[r] = tensor.Of(values[r])
		if shared {
			data[r] = tensor.Must(c.Empty(dtype.Float32, count))
		} else {
			data[r] = tensor.Must(tensor.Empty(dtype.Float32, count))
		}
	}
	// Before each round rank 0 tells whether there is one.
	for r := 1; r < len(comms); r++ {
		wg.Go(func() {
			for {
				if err := comms[r].Broadcast(ctx, flags[r], 0); err != nil {
					t.Error(err)
					return
				}
				if values[r][0] == 0 {
					return
				}
				if err := f(comms[r], data[r]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	tell := func(v int32) {
		values[0][0] = v
		if err := comms[0].Broadcast(ctx, flags[0], 0); err != nil {
			t.Fatal(err)
		}
	}
	round = func() {
		tell(1)
		if err := f(comms[0], data[0]); err != nil {
			t.Fatal(err)
		}
	}
	return round, func() { tell(0); wg.Wait() }
}

// steady returns how often a round allocates, when those that find plans to make and connections to open have been.
func steady(round func()) (n float64) {
	rounds := testutil.Pick(5, 20)
	for range 10 {
		for range rounds {
			round()
		}
		if n = testing.AllocsPerRun(rounds, round); n == 0 {
			break
		}
	}
	return n
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	ctx := context.Background()
	type operation struct {
		name string
		run  func(c *comm.Comm, x *tensor.Tensor) error
	}
	operations := []operation{
		{"all_reduce", func(c *comm.Comm, x *tensor.Tensor) error { return c.AllReduce(ctx, x, comm.Sum) }},
		{"average", func(c *comm.Comm, x *tensor.Tensor) error { return c.AllReduce(ctx, x, comm.Avg) }},
		{"premul_sum", func(c *comm.Comm, x *tensor.Tensor) error { return c.AllReduce(ctx, x, comm.PremulSum(0.5)) }},
		{"broadcast", func(c *comm.Comm, x *tensor.Tensor) error { return c.Broadcast(ctx, x, 1) }},
		{"reduce", func(c *comm.Comm, x *tensor.Tensor) error { return c.Reduce(ctx, x, 1, comm.Max) }},
		{"barrier", func(c *comm.Comm, x *tensor.Tensor) error { return c.Barrier(ctx) }},
		{"send and recv", func(c *comm.Comm, x *tensor.Tensor) error {
			if c.Rank() == 0 {
				if err := c.Send(ctx, x, 1); err != nil {
					return err
				}
				return c.Recv(ctx, x, 1)
			}
			if err := c.Recv(ctx, x, 0); err != nil {
				return err
			}
			return c.Send(ctx, x, 0)
		}},
	}
	pairs := map[*tensor.Tensor]*tensor.Tensor{} // x and what has as much for each of two ranks
	var mu sync.Mutex
	double := func(x *tensor.Tensor) *tensor.Tensor {
		mu.Lock()
		defer mu.Unlock()
		if pairs[x] == nil {
			pairs[x] = tensor.Must(tensor.Empty(x.DType(), 2*x.NumEl()))
		}
		return pairs[x]
	}
	operations = append(operations,
		operation{"all_gather_single",
			func(c *comm.Comm, x *tensor.Tensor) error { return c.AllGatherSingle(ctx, double(x), x) }},
		operation{"reduce_scatter_single", func(c *comm.Comm, x *tensor.Tensor) error {
			return c.ReduceScatterSingle(ctx, x, double(x), comm.Sum)
		}},
		operation{"gather_single",
			func(c *comm.Comm, x *tensor.Tensor) error { return c.GatherSingle(ctx, double(x), x, 0) }},
	)
	for f, fabric := range []string{"mem", "shm", "tcp"} {
		comms := over(fabric)(t, 2)
		for i, op := range operations {
			for _, shared := range []bool{false, true} {
				for k, count := range []int{1, 1000, 100_000} {
					if testutil.Short() && (f+i+k)%3 != 0 {
						continue
					}
					round, stop := lockstep(t, comms, op.run, shared, count)
					if n := steady(round); n != 0 {
						t.Errorf("%s, %s, shared=%v, %d elements: %v allocations per synchronous operation and broadcast", fabric,
							op.name, shared, count, n)
					}
					stop()
				}
			}
		}
		for _, c := range comms {
			c.Finalize(ctx)
		}
	}
}
