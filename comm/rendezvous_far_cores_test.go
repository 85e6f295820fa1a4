package comm_test

import (
	"context"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Stores into a stage that bypass the cache are faster between cores that are far apart, and slower otherwise. If they
// are faster for two ranks, these agree on an all-reduce that doesn't divide the sums; otherwise on one that does.
// Operations of other kinds and sizes in between change nothing.
func TestAgreeThatCoresAreFarApart(t *testing.T) {
	for _, x := range []struct{ stores, algorithm string }{{"bypass", "staged"}, {"cached", "staged_split"}} {
		for _, fabric := range []string{"mem", "shm"} {
			t.Run(x.stores+"/"+fabric, func(t *testing.T) {
				comms := open(t, 2, func(int) []comm.NewOption {
					return []comm.NewOption{comm.WithFabric(fabric), comm.WithHints(map[string]string{"mapped": "off",
						"stores": x.stores})}
				})
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						ctx := context.Background()
						defer c.Finalize(ctx)
						small := tensor.Must(tensor.Zeros(dtype.Int32, 3))
						for i, n := range []int{1 << 18, 100_001, 1 << 18, 40_000} {
							big := tensor.Must(tensor.Full(dtype.Int32, float64(r+i+1), n))
							op := comm.Op{Kind: backend.AllReduce, In: big, Out: big, Reduce: comm.Sum}
							if err := c.Submit(&op, nil); err != nil {
								t.Error(err)
								return
							}
							if i > 1 && op.Algorithm != x.algorithm {
								t.Errorf("rank %d: operation %d ran %s, want %s", r, i, op.Algorithm, x.algorithm)
							}
							for _, at := range []int{0, n / 2, n - 1} {
								if got, want := big.At([]int{at}...), float64(2*i+3); got != want {
									t.Errorf("rank %d: operation %d has %v at %d, want %v", r, i, got, at, want)
								}
							}
							if err := c.Broadcast(ctx, small, i%2); err != nil {
								t.Error(err)
								return
							}
							if err := c.AllReduce(ctx, small, comm.Sum); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
