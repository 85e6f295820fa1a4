package accl

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// BenchmarkBeside measures engines beside native, in turns, so that what else the machine does falls on both:
//
//	go test ./comm/accl -run '^$' -bench Beside -benchtime 300x
//
// It reports the median of each, and native's time as a share of the engines'.
func BenchmarkBeside(b *testing.B) {
	for _, c := range []struct {
		name  string
		bytes int
		ranks int
		op    func(ctx context.Context, c *comm.Comm, x *tensor.Tensor) error
	}{
		{"all_reduce", 1 << 20, 2, sum},
		{"all_reduce", 1 << 20, 4, sum},
		{"send", 8, 2, pingpong},
	} {
		b.Run(fmt.Sprintf("%s/%d/ranks=%d", c.name, c.bytes, c.ranks), func(b *testing.B) {
			var worlds [2][]*comm.Comm
			var took [2][]float64
			for i, backend := range []string{Name, "native"} {
				var err error
				if worlds[i], err = openWorld(backend, c.ranks, nil); err != nil {
					b.Fatal(err)
				}
			}
			turn := make([]chan int, c.ranks) // which world is next
			done := make(chan error)
			for r := range c.ranks {
				turn[r] = make(chan int)
				go func() {
					ctx := context.Background()
					var x [2]*tensor.Tensor
					for i := range x {
						x[i] = tensor.Must(worlds[i][r].Zeros(tensor.Of([]float32{0}).DType(), c.bytes/4))
					}
					for i := range turn[r] {
						own := worlds[i][r]
						err := own.Barrier(ctx)
						for range 10 {
							start := time.Now()
							if err == nil {
								err = c.op(ctx, own, x[i])
							}
							if r == 0 {
								took[i] = append(took[i], float64(time.Since(start))/1e3)
							}
						}
						done <- err
					}
					for i := range x {
						if err := worlds[i][r].Finalize(ctx); err != nil {
							b.Error(err)
						}
					}
					done <- nil
				}()
			}
			all := func() {
				for range c.ranks {
					if err := <-done; err != nil {
						b.Error(err)
					}
				}
			}
			for i := range 2 * max(b.N, 4) {
				for r := range turn {
					turn[r] <- i % 2
				}
				all()
			}
			for r := range turn {
				close(turn[r])
			}
			all()
			var median [2]float64
			for i := range took {
				slices.Sort(took[i])
				median[i] = took[i][len(took[i])/2]
			}
			if c.name == "send" { // there and back
				median[0], median[1] = median[0]/2, median[1]/2
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median[0], "us")
			b.ReportMetric(median[1], "native-us")
			b.ReportMetric(median[1]/median[0], "of-native")
		})
	}
}

func sum(ctx context.Context, c *comm.Comm, x *tensor.Tensor) error {
	return c.AllReduce(ctx, x, comm.Sum)
}

func pingpong(ctx context.Context, c *comm.Comm, x *tensor.Tensor) error {
	other := 1 - c.Rank()
	if c.Rank() == 0 {
		if err := c.Send(ctx, x, other); err != nil {
			return err
		}
		return c.Recv(ctx, x, other)
	}
	if err := c.Recv(ctx, x, other); err != nil {
		return err
	}
	return c.Send(ctx, x, other)
}
