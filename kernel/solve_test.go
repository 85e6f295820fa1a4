//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/dtype"
)

// A step that the library refuses, or has no memory for, is the caller's; after another failure all are.
func TestSolve(t *testing.T) {
	x := newStandin(t)
	n := abi.FamilyNamed("cuda").SolverNumbers()
	run := func(what string, r abi.SolverStatus, want error) {
		t.Helper()
		x.solve = r
		err := x.loader.Solve(x.stream, &device.Solve{Kind: device.Cholesky, Type: dtype.Float32, Rows: 4, Columns: 4,
			Count: 1, A: device.ColumnMatrix{Ptr: x.mem, Pitch: 4}})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	if l, err := x.loader.SolverLibrary(); err != nil || l.Name != "cuSOLVER (stand-in)" {
		t.Fatal(l, err)
	}
	run("a step", abi.Solved, nil)
	run("a refused one", n.NotSupported, device.ErrUnsupported)
	run("one without memory", n.AllocFailed, device.ErrOutOfMemory)
	run("a step after refused ones", abi.Solved, nil)
	run("one that fails", n.Internal, device.ErrUnsupported)
	run("one after that", abi.Solved, device.ErrUnsupported)
	if _, err := x.loader.SolverLibrary(); !errors.Is(err, device.ErrUnsupported) {
		t.Errorf("a library that has failed is there: %v", err)
	}
	if n := x.loader.Stats().Solved; n != 2 {
		t.Errorf("%d steps are counted", n)
	}
}
