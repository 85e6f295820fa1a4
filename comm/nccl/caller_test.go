//go:build linux && !race

package nccl_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu"
	gabi "github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/tensor"
)

// atOnce builds a library of CUDA's and NCCL's functions whose calls return at once, and opens it as the vendors' are.
// It returns the names of a device and of a backend's library that are it.
func atOnce(t testing.TB) (name, place string) {
	t.Helper()
	library := filepath.Join(t.TempDir(), "libnoop.so")
	if err := nccltest.BuildNoop(library, ""); errors.Is(err, exec.ErrNotFound) {
		t.Skip("left out: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	opened, err := dl.Source{Name: "at once", Candidates: []string{library}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	var driver gabi.Table
	var collectives abi.Table
	for _, table := range []any{&driver, &collectives} {
		if _, err := opened.Resolve(table); err != nil {
			t.Fatal(err)
		}
	}
	name = "cuda_" + strings.ToLower(t.Name())
	gpus, err := gpu.Supply("cuda", library, driver)
	if err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(gpus)
	if err == nil {
		err = device.Register(name, d)
	}
	if err == nil {
		_, err = nccl.Supply("NCCL", library, collectives, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name, library
}

// used is the time that the calling thread has had a processor.
func used() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// caller opens a communicator of one rank over such libraries, and returns an all-reduce of a tensor that is not
// Chorus', on a stream that is not Chorus'.
func caller(t testing.TB) (reduce func(async bool) error) {
	t.Helper()
	name, place := atOnce(t)
	g, err := device.Get(name + ":0")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithBackend("nccl"), comm.WithDevice(g.Name()), comm.WithRank(0, 1),
		comm.WithTimeout(time.Minute), comm.WithHints(map[string]string{"library": place}))
	if err != nil {
		t.Fatal(err)
	}
	const theirs = device.Ptr(0x7f0000001000)
	s, release, err := g.Adopt(0x5000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Finalize(ctx), release()); err != nil {
			t.Error(err)
		}
	})
	sctx := device.WithStream(ctx, s)
	return func(async bool) error {
		var h tensor.Header // as the C ABI does
		x, err := h.SetOn(g, dtype.Float32, theirs, 1024)
		switch {
		case err != nil:
			return err
		case !async:
			return c.AllReduce(sctx, x, comm.Sum)
		}
		var w comm.Work
		return errors.Join(c.AllReduce(sctx, x, comm.Sum, comm.Async(&w)), w.Wait(sctx))
	}
}

// BenchmarkCaller is what one all-reduce of a tensor that is not Chorus' costs on the thread of its caller: all that
// is the program's own, since calls of the libraries return at once. Beside other load the time of the processor
// counts.
func BenchmarkCaller(b *testing.B) {
	reduce := caller(b)
	for _, async := range []bool{false, true} {
		b.Run(map[bool]string{false: "sync", true: "async"}[async], func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ReportAllocs()
			begin := used()
			for b.Loop() {
				if err := reduce(async); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(used()-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}

// The functions that an operation calls are made without reflection, which would allocate at each of its calls.
func TestCallerAllocates(t *testing.T) {
	reduce := caller(t)
	for async, most := range map[bool]float64{false: mostAllocations, true: mostAllocations + 10} {
		var err error
		if n := testing.AllocsPerRun(500, func() { err = errors.Join(err, reduce(async)) }); n > most || err != nil {
			t.Errorf("asynchronous %v: %v allocations, where %v are the most; %v", async, n, most, err)
		}
	}
}

// mostAllocations bounds what a synchronous operation and the watch over it allocate, on average over all goroutines of
// the process: 29 on an idle machine. The watch looks more often while a busy machine delays the operation.
const mostAllocations = 33
