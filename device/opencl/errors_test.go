//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// broken makes a driver whose libraries were changed.
func broken(t *testing.T, change func(l *opencl.Library)) driver.Driver {
	libraries := load(t)
	for _, l := range libraries {
		change(l)
	}
	d, err := opencl.New(libraries, opencl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A device whose queues are invalid is lost: every call says so, and it isn't recovered.
func TestLost(t *testing.T) {
	var lost bool
	d := broken(t, func(l *opencl.Library) {
		marker := l.Marker
		l.Marker = func(q abi.Queue, n uint32, events, made *abi.Event) abi.Result {
			if lost {
				return abi.InvalidCommandQueue
			}
			return marker(q, n, events, made)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Malloc(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Fill(s, p, 1, 4096), d.StreamSynchronize(ctx, s)); err != nil {
		t.Fatal(err)
	}
	lost = true
	if err := d.Fill(s, p, 2, 4096); err != nil {
		t.Fatal(err)
	}
	var failed *driver.WorkError
	if err := d.StreamSynchronize(ctx, s); !errors.As(err, &failed) || failed.Device != "opencl:0" ||
		!strings.Contains(err.Error(), "CL_INVALID_COMMAND_QUEUE") {
		t.Errorf("StreamSynchronize: %v", err)
	}
	if _, err := d.Malloc(0, 64); !errors.Is(err, driver.ErrFailed) {
		t.Errorf("Malloc: %v", err)
	}
	if err := d.StreamRecover(ctx, s); err == nil {
		t.Error("the device was recovered")
	}
}

// A command that fails on the device is an error of its stream, until the stream is recovered.
func TestCommandFails(t *testing.T) {
	var fails bool
	d := broken(t, func(l *opencl.Library) {
		info := l.EventInfo
		l.EventInfo = func(e abi.Event, what uint32, n uintptr, value unsafe.Pointer, ret *uintptr) abi.Result {
			r := info(e, what, n, value, ret)
			if status := (*int32)(value); fails && what == abi.EventStatus && *status == abi.Complete {
				*status = int32(abi.OutOfResources)
			}
			return r
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Malloc(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	fails = true
	if err := d.Fill(s, p, 1, 4096); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.StreamSynchronize(ctx, s); !errors.Is(err, driver.ErrFailed) ||
			!strings.Contains(err.Error(), "CL_OUT_OF_RESOURCES") {
			t.Errorf("StreamSynchronize: %v", err)
		}
	}
	fails = false
	if err := d.StreamRecover(ctx, s); !errors.Is(err, driver.ErrFailed) {
		t.Errorf("StreamRecover: %v", err)
	}
	if err := errors.Join(d.Fill(s, p, 2, 4096), d.StreamSynchronize(ctx, s)); err != nil {
		t.Errorf("after it was recovered: %v", err)
	}
}

// Launches that the kernel or the device doesn't take are refused before anything is enqueued.
func TestRefusedLaunches(t *testing.T) {
	d := open(t, opencl.Options{})
	if !compiles(t, d, 0) {
		t.Skip("left out: the device's compiler doesn't work here")
	}
	m := d.(driver.Modules)
	var log *opencl.CompileError
	if _, err := m.ModuleLoad(0, []byte("kernel void f(global int *p) { p[0] = undeclared; }")); !errors.As(err, &log) ||
		!strings.Contains(log.Log, "undeclared") {
		t.Errorf("a source that is wrong: %v", err)
	}
	h, err := m.ModuleLoad(0, source)
	if err != nil {
		t.Fatal(err)
	}
	defer m.ModuleUnload(h)
	add, err := m.ModuleFunction(h, "add")
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.StreamDestroy(s)
	null := func() *driver.Args { return new(driver.Args).Pointer(0).Pointer(0).Pointer(0) }
	for what, l := range map[string]driver.Launch{
		"shared memory without a parameter for it": {Shared: 64, Args: null().Int32(0)},
		"too few arguments":                        {Args: null()},
		"a float for an int":                       {Args: null().Float32(0)},
		"an int for a pointer":                     {Args: new(driver.Args).Int64(0).Pointer(0).Pointer(0).Int32(0)},
		"a block that is too large":                {Block: driver.Dim{Z: 1 << 20}, Args: null().Int32(0)},
	} {
		if err := m.FunctionLaunch(s, add, l); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := m.FunctionLaunch(s, add, driver.Launch{Args: null().Int32(0)}); err != nil {
		t.Errorf("null pointers, which nothing is read from: %v", err)
	}
	if err := d.StreamSynchronize(context.Background(), s); err != nil {
		t.Error(err)
	}
}
