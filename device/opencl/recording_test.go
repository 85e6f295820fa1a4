//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// recorded reports whether the library has command buffers; PoCL 3.0 hasn't.
func recorded(t *testing.T) bool {
	for _, l := range load(t) {
		if opencl.HasExtension(l, "cl_khr_command_buffer") {
			return true
		}
	}
	return false
}

// Kernels of a graph that follow each other are one call for each launch, in order and with the arguments that they
// had, also while the launch before still runs. Functions of the host between them stay where they were.
func TestRecordings(t *testing.T) {
	if !recorded(t) {
		t.Skip("left out: no cl_khr_command_buffer")
	}
	libraries, kernels := load(t), 0
	for _, l := range libraries {
		run := l.KernelRun
		l.KernelRun = func(q abi.Queue, k abi.Kernel, dims uint32, offset, global, local *uintptr, waits uint32,
			events, made *abi.Event) abi.Result {
			kernels++
			return run(q, k, dims, offset, global, local, waits, events, made)
		}
	}
	d, err := opencl.New(libraries, opencl.Options{CommandBuffers: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.(driver.Closer).Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m, g := d.(driver.Modules), d.(driver.Graphs)
	module, err := m.ModuleLoad(0, affine)
	must(err)
	defer m.ModuleUnload(module)
	f, err := m.ModuleFunction(module, "affine")
	must(err)
	s, err := d.StreamCreate(0, 0)
	must(err)
	defer d.StreamDestroy(s)
	p, err := d.Malloc(0, 4)
	must(err)
	defer d.Free(0, p)
	scale := func(by, plus int32) {
		must(m.FunctionLaunch(s, f, driver.Launch{Args: new(driver.Args).Pointer(p).Int32(by).Int32(plus)}))
	}
	capture := func(work func()) driver.GraphHandle {
		must(g.CaptureBegin(s))
		work()
		h, err := g.CaptureEnd(s)
		must(err)
		return h
	}
	// x becomes (((x*2 + 1)*3 + host)*2 + 5)*7: a run of two, then the host's, then a run of two.
	first := capture(func() {
		scale(2, 1)
		scale(3, 0)
		must(d.HostFunc(s, "add", func() error { *(*int32)(at(p))++; return nil }))
		scale(2, 5)
		scale(7, 0)
	})
	x, err := g.Instantiate(first)
	must(err)
	must(g.GraphDestroy(first))
	want := int32(0)
	check := func(what string) {
		t.Helper()
		must(d.StreamSynchronize(ctx, s))
		if got := *(*int32)(at(p)); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	must(d.Fill(s, p, 0, 4))
	for range 5 { // without a wait
		must(g.GraphLaunch(x, s))
		want = (((want*2+1)*3+1)*2 + 5) * 7
	}
	check("five launches")
	next := capture(func() {
		scale(1, 1)
		scale(-1, 0)
		must(d.HostFunc(s, "none", func() error { return nil }))
		scale(1, 10)
		scale(3, 0)
	})
	must(g.GraphLaunch(x, s)) // with what it has before the update
	want = (((want*2+1)*3+1)*2 + 5) * 7
	must(g.GraphUpdate(x, next))
	must(g.GraphDestroy(next))
	must(g.GraphLaunch(x, s))
	want = (10 - (want + 1)) * 3
	must(g.ExecDestroy(x)) // while it runs
	check("before and after an update")
	if kernels != 0 {
		t.Errorf("%d kernels were launched one by one", kernels)
	}
}

var affine = []byte("kernel void affine(global int *x, int by, int plus) { *x = *x * by + plus; }")

// at is memory of a device that the host can touch.
func at(p driver.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
