package comm_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// BenchmarkRecorder measures what the flight recorder costs: blocks of operations on a world with it and on one without take turns in
// one process, and the difference is the median over the pairs of blocks. A world of one shows what a small operation pays.
func BenchmarkRecorder(b *testing.B) {
	for _, x := range []struct {
		ranks, elements, block int
	}{{1, 2, 20_000}, {2, 16 << 10, 500}, {2, 64 << 10, 100}, {2, 1 << 20, 10}} {
		b.Run(fmt.Sprintf("ranks=%d/bytes=%d", x.ranks, 4*x.elements), func(b *testing.B) {
			with, without := recorded(b, x.ranks, "1024"), recorded(b, x.ranks, "0")
			run := func(comms []*comm.Comm) float64 {
				start := time.Now()
				var wg sync.WaitGroup
				for _, c := range comms {
					wg.Go(func() {
						t := zeros(x.elements)
						for range x.block {
							if err := c.AllReduce(context.Background(), t, comm.Max); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				return float64(time.Since(start)) / float64(x.block)
			}
			run(with)
			run(without)
			var base, more []float64
			for i := 0; b.Loop(); i++ {
				var on, off float64
				if i%2 == 0 {
					on, off = run(with), run(without)
				} else {
					off, on = run(without), run(with)
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

// recorded opens a world in this process whose recorders keep so many operations.
func recorded(b *testing.B, ranks int, entries string) []*comm.Comm {
	b.Helper()
	b.Setenv("CHORUS_RECORD", entries)
	st := store.NewHash(time.Minute)
	comms := make([]*comm.Comm, ranks)
	var wg sync.WaitGroup
	for r := range comms {
		wg.Go(func() {
			var err error
			if comms[r], err = comm.New(context.Background(), comm.WithRank(r, ranks), comm.WithStore(st), comm.WithFabric("mem"),
				comm.WithName("recorded-"+entries)); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	b.Cleanup(func() {
		for _, c := range comms {
			c.Finalize(context.Background())
		}
	})
	return comms
}
