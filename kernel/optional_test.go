//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// A transform or a step of linear algebra is the caller's if the library refuses it or has no memory for it. After
// another failure all are.
func TestCompanions(t *testing.T) {
	steps := abi.FamilyNamed("cuda").SolverNumbers()
	for _, c := range []struct {
		name                         string
		open                         func(l *loader.Loader) (string, error)
		run                          func(x *standin, status int) error
		refused, allocFailed, failed int
		count                        func(s loader.Stats) int
	}{
		{"cuFFT (stand-in)", func(l *loader.Loader) (string, error) {
			found, err := l.FFTLibrary()
			return found.Name, err
		}, func(x *standin, status int) error {
			x.fft = abi.FFTResult(status)
			return x.loader.FFT(x.stream, &device.FFT{Type: dtype.Float32, Count: 1, In: x.mem,
				Out: x.mem.Add(2048), Dims: []device.FFTDim{{Size: 4, In: 1, Out: 1}}})
		}, int(abi.FFTNotSupported), int(abi.FFTAllocFailed), int(abi.FFTInternalError),
			func(s loader.Stats) int { return int(s.Transformed) }},
		{"cuSOLVER (stand-in)", func(l *loader.Loader) (string, error) {
			found, err := l.SolverLibrary()
			return found.Name, err
		}, func(x *standin, status int) error {
			x.solve = abi.SolverStatus(status)
			return x.loader.Solve(x.stream, &device.Solve{Kind: device.Cholesky, Type: dtype.Float32, Rows: 4, Columns: 4,
				Count: 1, A: device.ColumnMatrix{Ptr: x.mem, Pitch: 4}})
		}, int(steps.NotSupported), int(steps.AllocFailed), int(steps.Internal),
			func(s loader.Stats) int { return int(s.Solved) }},
	} {
		x := newStandin(t)
		if name, err := c.open(x.loader); err != nil || name != c.name {
			t.Fatal(name, err)
		}
		for _, call := range []struct {
			what   string
			status int
			want   error
		}{{"a call", 0, nil}, {"a refused one", c.refused, device.ErrUnsupported},
			{"one without memory", c.allocFailed, device.ErrOutOfMemory}, {"a call after refused ones", 0, nil},
			{"one that fails", c.failed, device.ErrUnsupported}, {"one after that", 0, device.ErrUnsupported}} {
			if err := c.run(x, call.status); !errors.Is(err, call.want) {
				t.Errorf("%s: %s: %v, want %v", c.name, call.what, err, call.want)
			}
		}
		if _, err := c.open(x.loader); !errors.Is(err, device.ErrUnsupported) {
			t.Errorf("%s has failed, and is there: %v", c.name, err)
		}
		if n := c.count(x.loader.Stats()); n != 2 {
			t.Errorf("%s: %d calls are counted", c.name, n)
		}
	}
}
