package comm_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// BenchmarkRecorder is what the flight recorder costs: all-reduce between two ranks of this process, with it and without.
func BenchmarkRecorder(b *testing.B) {
	for _, elements := range []int{2, 16 << 10, 1 << 20} {
		for _, entries := range []string{"0", "1024"} {
			b.Run(fmt.Sprintf("%dB/entries=%s", 4*elements, entries), func(b *testing.B) {
				b.Setenv("CHORUS_RECORD", entries)
				ctx := context.Background()
				st := store.NewHash(time.Minute)
				var wg sync.WaitGroup
				for r := range 2 {
					wg.Go(func() {
						c, err := comm.New(ctx, comm.WithRank(r, 2), comm.WithStore(st), comm.WithFabric("shm"))
						if err != nil {
							b.Error(err)
							return
						}
						defer c.Finalize(ctx)
						x := tensor.Must(c.Empty(dtype.Float32, elements))
						c.Barrier(ctx)
						if r == 0 {
							b.ResetTimer()
						}
						for range b.N {
							if err := c.AllReduce(ctx, x, comm.Sum); err != nil {
								b.Error(err)
								return
							}
						}
						c.Barrier(ctx)
						if r == 0 {
							b.StopTimer()
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
