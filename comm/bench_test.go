package comm_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// BenchmarkRecorder measures what the flight recorder costs in memory as processes share it. Blocks of operations with
// it and without it alternate on one world: two worlds would differ by more than that, by where their memory lies. The
// result is the median difference over the pairs of blocks. A world of one shows what a small operation pays.
func BenchmarkRecorder(b *testing.B) {
	for _, x := range []struct {
		ranks, elements, block int
		memory                 string
	}{{1, 2, 20_000, "mapped"}, {2, 2, 5000, "mapped"}, {2, 16 << 10, 500, "mapped"}, {2, 16 << 10, 500, "ordinary"},
		{2, 64 << 10, 100, "mapped"}, {2, 64 << 10, 100, "ordinary"}, {2, 256 << 10, 20, "mapped"}} {
		b.Run(fmt.Sprintf("ranks=%d/bytes=%d/memory=%s", x.ranks, 4*x.elements, x.memory), func(b *testing.B) {
			b.Setenv("CHORUS_RECORD", "1024")
			comms := open(b, x.ranks, func(int) []comm.NewOption { return []comm.NewOption{comm.WithFabric("shm")} })
			tensors := make([]*tensor.Tensor, x.ranks)
			for r, c := range comms {
				tensors[r] = tensor.Of(make([]float32, x.elements))
				if x.memory == "mapped" {
					tensors[r] = tensor.Must(c.Zeros(dtype.Float32, x.elements))
				}
				b.Cleanup(func() { c.Finalize(context.Background()) })
			}
			run := func(recorded bool) float64 {
				start := time.Now()
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						if !recorded {
							defer comm.Unrecorded(c)()
						}
						for range x.block {
							if err := c.AllReduce(context.Background(), tensors[r], comm.Max); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return float64(time.Since(start)) / float64(x.block)
			}
			run(true)
			run(false)
			var base, more []float64
			for i := 0; b.Loop(); i++ {
				first := run(i%2 == 0)
				second := run(i%2 != 0)
				on, off := first, second
				if i%2 != 0 {
					on, off = second, first
				}
				base, more = append(base, off), append(more, on-off)
			}
			slices.Sort(base)
			slices.Sort(more)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(base[len(base)/2], "ns/operation")
			b.ReportMetric(more[len(more)/2], "ns-recorder")
			b.ReportMetric(100*more[len(more)/2]/base[len(base)/2], "%-recorder")
		})
	}
}
