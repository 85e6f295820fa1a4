//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
	"github.com/chorus-comms/chorus/internal/dl"
)

// failing lets calls of a stand-in fail.
type failing struct {
	mu   sync.Mutex
	call string // empty: all
	with abi.Result
}

func (f *failing) set(call string, with abi.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call, f.with = call, with
}

func (f *failing) ask(call string) abi.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.call != "" && f.call != call {
		return abi.Success
	}
	return f.with
}

// An error of the library has its code, name and text, and the kind that callers match.
func TestResults(t *testing.T) {
	f := &failing{}
	d, _ := open(t, gputest.Options{Name: "cuda", Fail: f.ask})
	for r, kind := range map[abi.Result]driver.Kind{
		abi.OutOfMemory: driver.ErrOutOfMemory, abi.InvalidValue: driver.ErrInvalidArgument,
		abi.InvalidHandle: driver.ErrInvalidHandle, abi.NotSupported: driver.ErrUnsupported,
		abi.InvalidContext: driver.ErrInternal, abi.CaptureImplicit: driver.ErrCapture,
	} {
		f.set("cuMemAlloc_v2", r)
		_, err := d.Malloc(1, 64)
		var e *gpu.Error
		if !errors.Is(err, kind) || !errors.As(err, &e) || e.Code != r || e.Call != "MemAlloc" ||
			!strings.HasPrefix(e.Name, "CUDA_ERROR_") {
			t.Errorf("result %d: %v", r, err)
		}
	}
	f.set("cuMemAlloc_v2", abi.OutOfMemory)
	_, err := d.Malloc(1, 64)
	const want = "cuda:1: allocate: out of memory: CUDA 12.4: MemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	f.set("", abi.Success)
	p, err := d.Malloc(1, 64)
	if err == nil {
		err = d.Free(1, p)
	}
	if err != nil {
		t.Error("after failures: ", err)
	}
}

// A fault of the GPU is an error of its streams, for good, and leaves the other one alone.
func TestSticky(t *testing.T) {
	sim, err := gputest.New(gputest.Options{Name: "hip"})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	var fault atomic.Bool
	table := sim.Table()
	query := table.EventQuery
	table.EventQuery = func(e abi.Event) abi.Result {
		dev := new(abi.Device)
		if table.GetDevice(dev); fault.Load() && *dev == 0 {
			return abi.IllegalAddress
		}
		return query(e)
	}
	lib, err := gpu.Supply("hip", "stand-in", table)
	if err != nil {
		t.Fatal(err)
	}
	d, err := gpu.New(lib)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.StreamCreate(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	fault.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 2 {
		err := d.StreamSynchronize(ctx, s)
		var w *driver.WorkError
		var e *gpu.Error
		if !errors.As(err, &w) || w.Device != "hip:0" || !errors.As(err, &e) || e.Code != abi.IllegalAddress ||
			e.Name != "HIP_ERROR_ILLEGAL_ADDRESS" {
			t.Fatalf("StreamSynchronize = %v", err)
		}
	}
	fault.Store(false) // the library would say the same for ever
	if err := d.StreamRecover(ctx, s); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, driver.ErrFailed) {
		t.Errorf("StreamRecover = %v", err)
	}
	if _, err := d.Malloc(0, 64); !errors.Is(err, driver.ErrFailed) {
		t.Errorf("Malloc = %v", err)
	}
	if err := d.Synchronize(ctx, 0); !errors.Is(err, driver.ErrFailed) {
		t.Errorf("Synchronize = %v", err)
	}
	if err := errors.Join(d.Synchronize(ctx, 1), d.StreamSynchronize(ctx, other)); err != nil {
		t.Error("the other device: ", err)
	}
}

// A function that the library lacks is an error that names it, at once or when it's needed.
func TestOldLibrary(t *testing.T) {
	sim, err := gputest.New(gputest.Options{Name: "cuda", Without: []string{"cuMemAlloc_v2", "cuCtxPopCurrent_v2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	_, err = gpu.Supply("cuda", "an old one", sim.Table())
	var lacks *dl.SymbolError
	if !errors.As(err, &lacks) || err.Error() != "CUDA 12.4 (an old one) lacks cuMemAlloc_v2|hipMalloc" {
		t.Errorf("Supply = %v", err)
	}
	table := sim.Table()
	table.MemAlloc = func(*uintptr, uint64) abi.Result { return abi.OutOfMemory }
	const want = "CUDA 12.4 (an old one) has no contexts: it lacks cuCtxPopCurrent_v2"
	if _, err := gpu.Supply("cuda", "an old one", table); err == nil || err.Error() != want {
		t.Errorf("Supply = %v", err)
	}
	d, _ := open(t, gputest.Options{Name: "cuda", Without: []string{"cuGraphInstantiateWithFlags", "cuIpcGetMemHandle"}})
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CaptureBegin(s); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(),
		"CUDA 12.4 (stand-in) has no graphs: it lacks cuGraphInstantiateWithFlags") {
		t.Errorf("CaptureBegin = %v", err)
	}
	if err := d.StreamDestroy(s); err != nil {
		t.Error(err)
	}
	_, err = standInWith(t, func(t *abi.Table) { t.Init = func(uint32) abi.Result { return abi.NoDevice } })
	if err == nil || !strings.Contains(err.Error(), "CUDA 12.4: Init: no device (CUDA_ERROR_NO_DEVICE, 100)") {
		t.Errorf("without a GPU: %v", err)
	}
}

func standInWith(t *testing.T, change func(*abi.Table)) (*gpu.Library, error) {
	sim, err := gputest.New(gputest.Options{Name: "cuda"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	table := sim.Table()
	change(&table)
	return gpu.Supply("cuda", "stand-in", table)
}

// The libraries of this machine, or the error that names what was looked for.
func TestRealLibrary(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Get(name + ":0")
			if err == nil {
				t.Logf("%v: %+v", d.Runtime().Driver().(*gpu.Driver).Library, d.Properties())
				return
			}
			if !errors.Is(err, driver.ErrLoad) {
				t.Fatal(err)
			}
			t.Log(err)
			var none *dl.NotFoundError
			var e *gpu.Error
			var old *dl.SymbolError
			switch {
			case errors.As(err, &e): // it's there, and has no GPU
				if e.Code == abi.Success || e.Name == "" || e.Text == "" {
					t.Errorf("%+v", e)
				}
			case errors.As(err, &none):
				for _, place := range abi.FamilyNamed(name).Places {
					if !strings.Contains(err.Error(), strings.TrimPrefix(place, "/")) {
						t.Errorf("the error doesn't say that %s was looked for", place)
					}
				}
				t.Skip("left out: the library isn't here")
			case errors.As(err, &old): // HIP before 5.3
			default:
				t.Errorf("%v: neither an error of the library nor of the dynamic linker", err)
			}
		})
	}
}

// Functions whose library can't let streams wait run in its call back, and so does all but what they'd need to run side
// by side for.
func TestWithoutWaits(t *testing.T) {
	d, _ := open(t, gputest.Options{Name: "cuda", Parallel: true, MemoryBytes: 32 << 20,
		Without: []string{"cuStreamWaitValue32_v2"}})
	if d.Waits(0) {
		t.Fatal("it can't wait")
	}
	conformance(t, d)
	for name, without := range map[string]string{"cuda": "cuStreamWaitValue32_v2", "hip": "hipExtMallocWithFlags"} {
		if d, _ := open(t, gputest.Options{Name: name, Without: []string{without}}); d.Waits(0) {
			t.Errorf("%s without %s waits", name, without)
		}
	}
}

// Memory that others in the process have allocated, and their streams, are used like the driver's own.
func TestForeign(t *testing.T) {
	for _, name := range []string{"cuda", "hip"} {
		t.Run(name, func(t *testing.T) {
			d, sim := open(t, gputest.Options{Name: name})
			theirs := sim.Driver() // as PyTorch, which calls the library itself
			p, err := theirs.Malloc(1, 5000)
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Free(1, p)
			at, err := d.Attributes(p.Add(100))
			if err != nil || at != (driver.Attributes{Type: driver.DeviceMemory, Device: 1, Base: p, Bytes: 5000}) {
				t.Errorf("Attributes = %+v, %v", at, err)
			}
			h, err := theirs.StreamCreate(1, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.StreamDestroy(h)
			if err := d.Fill(h, p, 1, 5000); !errors.Is(err, driver.ErrInvalidHandle) {
				t.Errorf("a stream that wasn't adopted: %v", err)
			}
			if err := d.StreamAdopt(0, h); !errors.Is(err, driver.ErrWrongDevice) {
				t.Errorf("a stream of another device: %v", err)
			}
			if err := d.StreamAdopt(1, 0); !errors.Is(err, driver.ErrInvalidHandle) {
				t.Errorf("the default stream: %v", err)
			}
			host, err := d.MallocHost(5000)
			if err != nil {
				t.Fatal(err)
			}
			defer d.FreeHost(host)
			rt := device.NewRuntime(name, d)
			dev := rt.Devices()[1]
			ctx := context.Background()
			got := make([]byte, 5000)
			ran := false
			for range 2 { // twice, as two users of one stream
				if err := d.StreamAdopt(1, h); err != nil {
					t.Fatal(err)
				}
			}
			s := dev.External(h)
			err = errors.Join(s.Fill(p, 7, 5000), s.HostFunc("mine", func() error { ran = true; return nil }),
				s.CopyOut(ctx, got, p))
			if err != nil || !ran || slices.ContainsFunc(got, func(b byte) bool { return b != 7 }) {
				t.Errorf("on somebody else's stream: %v, ran %v", err, ran)
			}
			if err := d.StreamDestroy(h); !errors.Is(err, driver.ErrInvalidHandle) {
				t.Errorf("destroying it: %v", err)
			}
			if err := d.Free(1, p); !errors.Is(err, driver.ErrInvalidPointer) {
				t.Errorf("freeing their memory: %v", err)
			}
			// While they capture it, copies are theirs, and functions are refused.
			if err := theirs.CaptureBegin(h); err != nil {
				t.Fatal(err)
			}
			if st, err := d.CaptureStatus(h); st != driver.Capturing || err != nil {
				t.Errorf("CaptureStatus = %v, %v", st, err)
			}
			if err := s.Fill(p, 9, 5000); err != nil {
				t.Error(err)
			}
			if err := s.HostFunc("x", func() error { return nil }); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("a function in their capture: %v", err)
			}
			if err := s.Synchronize(ctx); !errors.Is(err, driver.ErrCapture) {
				t.Errorf("waiting in their capture: %v", err)
			}
			g, err := theirs.CaptureEnd(h)
			if err != nil {
				t.Fatal("their capture was disturbed: ", err)
			}
			theirs.GraphDestroy(g)
			for range 2 {
				if err := d.StreamAbandon(h); err != nil {
					t.Error(err)
				}
			}
			if err := s.Fill(p, 1, 1); !errors.Is(err, driver.ErrInvalidHandle) {
				t.Errorf("after it was abandoned: %v", err)
			}
		})
	}
}
