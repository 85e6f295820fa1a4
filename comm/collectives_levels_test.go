package comm_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

// onHosts opens a world whose rank r is on host hosts[r].
func onHosts(t testing.TB, fabric string, hosts []int, hints map[string]string) []*comm.Comm {
	return open(t, len(hosts), func(r int) []comm.NewOption {
		mine := map[string]string{"host_id": fmt.Sprint(hosts[r])}
		for k, v := range hints {
			mine[k] = v
		}
		return []comm.NewOption{comm.WithFabric(fabric), comm.WithHints(mine)}
	})
}

// An all-to-all in two levels puts every block where it belongs, whatever its type and size, wherever the ranks are.
func TestAllToAllInTwoLevels(t *testing.T) {
	for i, w := range []struct {
		fabric string
		hosts  []int
	}{
		{"mem", []int{0, 0, 1}},
		{"mem", []int{0, 1, 0, 1}},
		{"mem", []int{0, 0, 1, 1, 2, 2}},
		{"mem", []int{0, 1, 1, 2, 2, 2, 0, 2}},
		{"auto", []int{0, 0, 1, 1}},
		{"auto", []int{0, 1, 1, 1}},
	} {
		t.Run(fmt.Sprint(w.fabric, w.hosts), func(t *testing.T) {
			comms := onHosts(t, w.fabric, w.hosts, nil)
			var wg sync.WaitGroup
			for _, c := range comms {
				wg.Go(func() {
					defer c.Finalize(context.Background())
					for k, dt := range []dtype.DType{dtype.Uint8, dtype.BFloat16, dtype.Float64} {
						// The largest blocks are sent for themselves, in f64 through several chunks of the stages.
						for j, count := range []int{0, 1, 7, 1000, 20_001} {
							if testutil.Short() && (i+j+k)%3 != 0 {
								continue
							}
							if err := exchanged(c, dt, count); err != nil {
								t.Errorf("rank %d, %v x %d: %v", c.Rank(), dt, count, err)
								return
							}
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// exchanged runs one all-to-all and checks its result.
func exchanged(c *comm.Comm, dt dtype.DType, count int) error {
	n, me := c.Size(), c.Rank()
	value := func(from, to, i int) float64 { return float64((from*31 + to*7 + i) % 127) }
	values := make([]float64, n*count)
	for i := range values {
		values[i] = value(me, i/count, i%count)
	}
	in := tensor.Must(tensor.Empty(dt, n*count))
	if err := in.CopyFrom(tensor.Of(values)); err != nil {
		return err
	}
	out := tensor.Must(tensor.Full(dt, 99, n*count))
	op := comm.Op{Kind: backend.AllToAllSingle, In: in, Out: out, Hints: map[string]string{"algorithm": "two_level"}}
	if err := c.Submit(&op, nil); err != nil {
		return err
	}
	if op.Algorithm != "two_level" {
		return fmt.Errorf("%q has run", op.Algorithm)
	}
	for i := range values {
		if got, want := out.At(i), value(i/max(1, count), me, i%max(1, count)); got != want {
			return fmt.Errorf("element %d is %v, want %v", i, got, want)
		}
		if in.At(i) != values[i] {
			return fmt.Errorf("element %d of the input has become %v", i, in.At(i))
		}
	}
	return nil
}

// Messages between hosts take a millisecond, in virtual time, in which nothing else takes any: what an all-to-all takes
// is how many of them follow one after the other.
func TestAllToAllBetweenFarHosts(t *testing.T) {
	const delay = time.Millisecond
	for _, w := range []struct {
		hosts                     []int
		bytes                     int // of a block
		twoLevel, pairwise, bruck int // messages
	}{
		{[]int{0, 0, 0, 0, 1, 1, 1, 1}, 8, 1, 7, 3},
		{[]int{0, 0, 0, 0, 1, 1, 1, 1}, 64 << 10, 1, 7, 3},
		{[]int{0, 0, 1, 1, 2, 2, 3, 3}, 8, 1, 7, 3},
		{[]int{0, 0, 1, 1, 2, 2, 3, 3}, 64 << 10, 3, 7, 3},
		{[]int{0, 1, 2, 3, 0, 1, 2, 3}, 8, 1, 6, 2},
		{[]int{0, 1, 1, 1, 1, 1, 1, 2}, 8, 1, 7, 3},
	} {
		rounds := map[string]int{"two_level": w.twoLevel, "pairwise": w.pairwise, "bruck": w.bruck}
		for _, algorithm := range []string{"two_level", "pairwise", "bruck", ""} {
			synctest.Test(t, func(t *testing.T) {
				comms := open(t, len(w.hosts), func(r int) []comm.NewOption {
					var script []string
					for peer, h := range w.hosts {
						if h != w.hosts[r] {
							script = append(script, fmt.Sprintf("delay=%v class=collective peer=%d", delay, peer))
						}
					}
					return []comm.NewOption{comm.WithFabric("fault"),
						comm.WithHints(map[string]string{"host_id": fmt.Sprint(w.hosts[r]),
							"fabric.inner": "mem", "fabric.script": strings.Join(script, ";")})}
				})
				size, start := len(comms)*w.bytes, time.Now()
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						in, out := tensor.Must(tensor.Zeros(dtype.Uint8, size)), tensor.Must(tensor.Zeros(dtype.Uint8, size))
						op := comm.Op{Kind: backend.AllToAllSingle, In: in, Out: out}
						if algorithm != "" {
							op.Hints = map[string]string{"algorithm": algorithm}
						}
						if err := c.Submit(&op, nil); err != nil {
							t.Errorf("rank %d: %v", r, err)
						}
						if algorithm == "" && op.Algorithm != "two_level" {
							t.Errorf("%s was chosen", op.Algorithm)
						}
					})
				}
				wg.Wait()
				took := time.Since(start)
				t.Logf("hosts %v, blocks of %d B, %q: %v", w.hosts, w.bytes, algorithm, took)
				if want := time.Duration(rounds[algorithm]) * delay; algorithm != "" && took != want {
					t.Errorf("hosts %v, blocks of %d B, %q: %v, want %v", w.hosts, w.bytes, algorithm, took, want)
				}
				for _, c := range comms {
					wg.Go(func() { c.Finalize(context.Background()) })
				}
				wg.Wait()
			})
		}
	}
}
