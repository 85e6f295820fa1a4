//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// A transform that the library refuses, or has no memory for, is the caller's; after another failure all are.
func TestTransform(t *testing.T) {
	x := newStandin(t)
	run := func(what string, r abi.FFTResult, want error) {
		t.Helper()
		x.fft = r
		err := x.loader.Transform(x.stream, &device.Transform{Type: dtype.Float32, Count: 1, In: x.mem, Out: x.mem.Add(2048),
			Dims: []device.TransformDim{{Size: 4, In: 1, Out: 1}}})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	if l, err := x.loader.TransformLibrary(); err != nil || l.Name != "cuFFT (stand-in)" {
		t.Fatal(l, err)
	}
	run("a transform", abi.Transformed, nil)
	run("a refused one", abi.FFTNotSupported, device.ErrUnsupported)
	run("one without memory", abi.FFTAllocFailed, device.ErrOutOfMemory)
	run("a transform after refused ones", abi.Transformed, nil)
	run("one that fails", abi.FFTInternalError, device.ErrUnsupported)
	run("one after that", abi.Transformed, device.ErrUnsupported)
	if _, err := x.loader.TransformLibrary(); !errors.Is(err, device.ErrUnsupported) {
		t.Errorf("a library that has failed is there: %v", err)
	}
	if n := x.loader.Stats().Transformed; n != 2 {
		t.Errorf("%d transforms are counted", n)
	}
}
