//go:build linux && !race

package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu"
	gabi "github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/tensor"
)

// special are functions of a library whose calls return at once, which do more than that.
const special = `
#include <stdlib.h>
#include <stdint.h>
static uintptr_t handle = 0x10000;
int cuDriverGetVersion(int *v) { *v = 12080; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDevicePrimaryCtxRetain(uintptr_t *c, int d) { *c = 0xc0de0; return 0; }
int cuCtxGetCurrent(uintptr_t *c) { *c = 0xc0de0; return 0; } /* as on a thread of PyTorch's */
int cuStreamGetCtx(uintptr_t s, uintptr_t *c) { *c = 0xc0de0; return 0; }
int cuStreamCreateWithPriority(uintptr_t *s, unsigned flags, int priority) { *s = handle += 16; return 0; }
int cuEventCreate(uintptr_t *e, unsigned flags) { *e = handle += 16; return 0; }
int cuMemAlloc_v2(void **p, size_t n) { return !(*p = aligned_alloc(4096, (n + 4095) / 4096 * 4096)); }
int cuMemHostAlloc(void **p, size_t n, unsigned flags) { return cuMemAlloc_v2(p, n); }
int cuMemGetInfo_v2(size_t *available, size_t *total) { *available = *total = 1ul << 30; return 0; }
int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uintptr_t p) {
	*(int *)values[0] = 2; /* device memory, of device 0 */
	*(int *)values[1] = 0;
	*(uintptr_t *)values[2] = p & ~4095ul;
	*(size_t *)values[3] = 1ul << 30;
	return 0;
}
int ncclGetVersion(int *v) { *v = 23203; return 0; }
const char *ncclGetErrorString(int r) { return "an error"; }
const char *ncclGetLastError(void *c) { return ""; }
int ncclCommInitRankConfig(uintptr_t *c, int n, ...) { *c = 0xacc1; return 0; }
int ncclCommGetAsyncError(void *c, int *r) { *r = 0; return 0; }
`

// atOnce builds a library of CUDA's and NCCL's functions whose calls return at once, and opens it as the vendors' are.
// It returns the names of a device and of a backend's library that are it.
func atOnce(t testing.TB) (name, place string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("left out: there is no C compiler")
	}
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString(special)
	for _, table := range []reflect.Type{reflect.TypeFor[gabi.Table](), reflect.TypeFor[abi.Table]()} {
		for i := range table.NumField() {
			symbol, _, _ := strings.Cut(table.Field(i).Tag.Get("dl"), "|")
			if !strings.Contains(special, " "+symbol+"(") && !strings.Contains(special, "*"+symbol+"(") &&
				!strings.HasPrefix(symbol, "hip") {
				fmt.Fprintf(&text, "int %s() { return 0; }\n", symbol)
			}
		}
	}
	source, library := filepath.Join(dir, "atonce.c"), filepath.Join(dir, "libatonce.so")
	if err := os.WriteFile(source, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-w", "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
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

// caller opens a communicator of one rank over such libraries, and returns an all-reduce of a tensor of somebody else's,
// on somebody else's stream.
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

// BenchmarkCaller is what one all-reduce of a tensor of somebody else's costs on the thread of its caller: all that is
// the program's own, since calls of the libraries return at once. Beside other load the time of the processor counts.
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

// mostAllocations are those of a synchronous operation, and of the watch over it.
const mostAllocations = 30
