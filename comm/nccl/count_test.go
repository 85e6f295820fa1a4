//go:build linux

package nccl_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	gabi "github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// An operation and the watch over it cost calls of the driver, each of which takes a real one a microsecond or more.
const (
	mostCalls = 20  // of one all-reduce of a tensor of others, on their stream, its wait included
	watching  = 2.0 // for each millisecond, however many operations are under way
)

func TestCount(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	caller := unix.Gettid()
	var mu sync.Mutex
	counts, others := map[string]int{}, false // of the caller's thread, or of all others
	sim, err := gputest.New(gputest.Options{Name: "cuda", MemoryBytes: 64 << 20, Devices: 8, Fail: func(call string) gabi.Result {
		mu.Lock()
		defer mu.Unlock()
		if mine := unix.Gettid() == caller; mine != others {
			counts[call]++
		}
		return gabi.Success
	}})
	if err != nil {
		t.Fatal(err)
	}
	// count is how many calls are made while f runs.
	count := func(what string, f func()) (total int) {
		mu.Lock()
		clear(counts)
		mu.Unlock()
		f()
		mu.Lock()
		defer mu.Unlock()
		var l []string
		for k, n := range counts {
			total += n
			l = append(l, fmt.Sprintf("%s %d", k, n))
		}
		sort.Strings(l)
		t.Logf("%s: %d calls: %s", what, total, strings.Join(l, ", "))
		return total
	}
	const name = "cuda_count"
	count("opening the libraries", func() { supply(t, sim, "cuda", name) })
	g := devices(t, name)[3]
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := comm.New(ctx, comm.WithBackend("nccl"), comm.WithDevice(g.Name()), comm.WithRank(0, 1),
		comm.WithTimeout(5*time.Second), comm.WithHints(map[string]string{"library": "for " + name}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Finalize(ctx)
	if got := sim.Contexts(); !slices.Equal(got, []int{3}) {
		t.Errorf("device 3 of 8 is used, and devices %v have contexts", got)
	}
	h, _ := sim.Driver().StreamCreate(3, 0)
	s, release, err := g.Adopt(h)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	sctx := device.WithStream(ctx, s)
	theirs, err := sim.Driver().Malloc(3, 4096) // as PyTorch's
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"sync", "async"} {
		n := mostCalls + 1
		for range 3 { // the first makes what the others find
			n = min(n, count(mode+" all_reduce", func() {
				var in, out tensor.Header // as the C ABI does, for the input and the output
				a, err := in.SetOn(g, dtype.Float32, theirs, 1024)
				if err != nil {
					t.Fatal(err)
				}
				b, err := out.SetOn(g, dtype.Float32, theirs, 1024)
				if err != nil {
					t.Fatal(err)
				}
				w := new(comm.Work)
				if mode == "sync" {
					err = c.AllReduce(sctx, a, comm.Sum, comm.Into(b))
				} else if err = c.AllReduce(sctx, a, comm.Sum, comm.Into(b), comm.Async(w)); err == nil {
					err = w.Wait(sctx)
				}
				if err != nil {
					t.Fatal(err)
				}
			}))
			if err := s.Synchronize(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n > mostCalls {
			t.Errorf("%s: more than %d calls of the driver", mode, mostCalls)
		}
	}
	gate := make(chan struct{})
	if err := s.HostFunc("gate", func() error { <-gate; return nil }); err != nil {
		t.Fatal(err)
	}
	x, _ := tensor.FromDevice(dtype.Float32, g, theirs, 1024)
	for range 100 {
		if err := c.AllReduce(sctx, x, comm.Sum); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	others = true
	mu.Unlock()
	begin := time.Now()
	n := count("a time with 100 operations under way", func() { time.Sleep(100 * time.Millisecond) })
	if d := time.Since(begin); float64(n) > watching*float64(d.Milliseconds()) {
		t.Errorf("%d calls of the driver in %v with 100 operations under way", n, d)
	}
	close(gate)
	if err := s.Synchronize(ctx); err != nil {
		t.Fatal(err)
	}
}
