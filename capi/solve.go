//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

//export goSolveRun
func goSolveRun(h C.chorus_stream, x *C.chorus_solve) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && x == nil {
		err = refused("chorus_solve_run got NULL")
	}
	if err == nil {
		err = sized("chorus_solve", x.size, unsafe.Sizeof(*x))
	}
	if err != nil {
		return fail(err)
	}
	l, err := s.loader()
	if err != nil {
		return fail(err)
	}
	matrix := func(c *C.chorus_columns) (m device.ColumnMatrix) {
		if c != nil {
			m = device.ColumnMatrix{Ptr: ptr(c.ptr), Pitch: int(c.pitch), Next: int(c.next)}
		}
		return m
	}
	series := func(c *C.chorus_columns) device.Series {
		m := matrix(c)
		return device.Series{Ptr: m.Ptr, Next: m.Next}
	}
	err = l.Solve(s.Stream, &device.Solve{Kind: device.SolveKind(x.kind), Type: dtype.DType(x.dtype),
		Rows: int(x.rows), Columns: int(x.columns), Others: int(x.others), Count: int(x.count),
		A: matrix(x.a), B: matrix(x.b), U: matrix(x.u), V: matrix(x.v), Values: series(x.values),
		Factors: series(x.factors), Pivots: series(x.pivots), Info: ptr(x.info),
		Upper: x.upper != 0, Vectors: x.vectors != 0, All: x.all != 0, Op: device.MatrixOp(x.op),
		Right: x.right != 0, Unit: x.unit != 0})
	if errors.Is(err, device.ErrCapture) || errors.Is(err, device.ErrOutOfMemory) { // the caller does without
		err = noKernel(err)
	}
	return fail(err)
}

//export goBlasHandle
func goBlasHandle(h C.chorus_stream, out *unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && out == nil {
		err = refused("chorus_blas_handle got NULL")
	}
	if err != nil {
		return fail(err)
	}
	handle, err := s.BLASHandle()
	if err == nil {
		*(*uintptr)(unsafe.Pointer(out)) = handle
	}
	return fail(err)
}

//export goSolveGet
func goSolveGet(h C.chorus_device, look C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && look == 0 {
		err = d.Solves()
	}
	if err != nil || look == 0 {
		return fail(err)
	}
	l, err := loaderOf(d)
	if err != nil {
		return fail(err)
	}
	_, err = l.SolverLibrary()
	return fail(err)
}
