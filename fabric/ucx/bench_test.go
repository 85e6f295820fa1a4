package ucx_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/fabric/ucx"
)

// TestSpeed measures messages between two processes: the latency of one way, which is half of the median round trip, and
// the rate with a window of 16 messages.
// It's for a comparison with ucx_perftest, and runs if it's asked for by -test.v and its name:
//
//	UCX_TLS=tcp UCX_NET_DEVICES=lo go test ./fabric/ucx -v -count 1 -run TestSpeed
//	UCX_TLS=tcp UCX_NET_DEVICES=lo ucx_perftest -p 13400 & ucx_perftest localhost -p 13400 -t tag_lat -s 8 -n 20000
func TestSpeed(t *testing.T) {
	need(t)
	if !testing.Verbose() && os.Getenv("CHORUS_UCX_RESULT") == "" {
		t.Skip("left out: a measurement, for -v")
	}
	result := os.Getenv("CHORUS_UCX_RESULT")
	if result == "" {
		result = filepath.Join(t.TempDir(), "result")
		t.Setenv("CHORUS_UCX_RESULT", result)
		defer func() {
			text, err := os.ReadFile(result)
			if err != nil {
				t.Error(err)
			}
			t.Log(string(text))
		}()
	}
	fabrictest.Processes(t, 2, func(t *testing.T, c fabric.Config) {
		c.Options = map[string]string{"errors": "none"}
		f, err := fabric.Open(t.Context(), ucx.Name, c)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close(context.Background())
		w := fabric.NewWaiter(fabric.NewAbort())
		exchange := func(n, window, rounds int, both bool) (took, median time.Duration) {
			ms := make([]fabric.Msg, window)
			for i := range ms {
				buf := make([]byte, n)
				ms[i] = fabric.Msg{Peer: 1 - c.Rank, Key: fabric.Key{Comm: 1, Class: fabric.PointToPoint},
					Buf: unsafe.Pointer(unsafe.SliceData(buf)), Len: n}
			}
			move := func(send bool) {
				for i := range ms {
					ms[i].Reset(w)
					ms[i].Peer = 1 - c.Rank
					if send {
						f.Send(&ms[i])
					} else {
						f.Recv(&ms[i])
					}
				}
				for i := range ms {
					w.Begin(nil, 20*time.Second)
					if err := f.Wait(&ms[i], w); err != nil {
						t.Fatal(err)
					}
				}
			}
			start := time.Now()
			each := make([]time.Duration, rounds)
			for i := range each {
				began := time.Now()
				move(c.Rank == 0)
				if both {
					move(c.Rank == 1)
				}
				each[i] = time.Since(began)
			}
			took = time.Since(start)
			slices.Sort(each)
			return took, each[rounds/2]
		}
		exchange(8, 1, 1000, true)
		_, round := exchange(8, 1, 20000, true)
		exchange(1<<20, 16, 5, false)
		took, _ := exchange(1<<20, 16, 60, false)
		if c.Rank == 0 {
			text := fmt.Sprintf("latency of 8 B: %v; rate of 1 MiB: %.0f MB/s", round/2, 960*1.048576/took.Seconds())
			if err := os.WriteFile(result, []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
}
