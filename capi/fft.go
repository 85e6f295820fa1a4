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

// transformDims is how many dimensions a transform has at most, of any library.
const transformDims = 8

//export goFftRun
func goFftRun(h C.chorus_stream, t *C.chorus_fft) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && t == nil {
		err = refused("chorus_fft_run got NULL")
	}
	if err == nil {
		err = sized("chorus_fft", t.size, unsafe.Sizeof(*t))
	}
	if err == nil {
		err = counted("dimensions", t.dim, t.dims, transformDims)
	}
	if err != nil {
		return fail(err)
	}
	l, err := s.loader()
	if err != nil {
		return fail(err)
	}
	x := device.FFT{Kind: device.FFTKind(t.kind), Inverse: t.inverse != 0, Type: dtype.DType(t.dtype),
		Dims: make([]device.FFTDim, t.dims), Count: int(t.count), In: ptr(t.in), Out: ptr(t.out),
		InNext: int(t.in_next), OutNext: int(t.out_next)}
	for i, d := range slice(t.dim, t.dims) {
		x.Dims[i] = device.FFTDim{Size: int(d.size), In: int(d.in), Out: int(d.out)}
	}
	err = l.FFT(s.Stream, &x)
	if errors.Is(err, device.ErrCapture) || errors.Is(err, device.ErrOutOfMemory) { // the caller does without
		err = noKernel(err)
	}
	return fail(err)
}

//export goFftGet
func goFftGet(h C.chorus_device, info *C.chorus_fft_info) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && info == nil {
		err = refused("chorus_fft_get got NULL")
	}
	if err == nil {
		err = sized("chorus_fft_info", info.size, unsafe.Sizeof(*info))
	}
	if err != nil {
		return fail(err)
	}
	plans, err := d.FFTPlans()
	if err != nil {
		return fail(err)
	}
	l, err := loaderOf(d)
	if err != nil {
		return fail(err)
	}
	*info = C.chorus_fft_info{size: info.size, plans: C.int64_t(plans.Len()), most_plans: C.int64_t(plans.Most())}
	if lib, err := l.FFTLibrary(); err == nil {
		info.dims, info.align = C.int32_t(lib.Dims), C.int32_t(lib.Align)
		if lib.Spoils {
			info.spoils = 1
		}
	}
	return C.CHORUS_OK
}

//export goFftPlans
func goFftPlans(h C.chorus_device, most C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && most < -1 {
		err = refused("chorus_fft_plans: %d plans", int64(most))
	}
	if err != nil {
		return fail(err)
	}
	plans, err := d.FFTPlans()
	if err != nil {
		return fail(err)
	}
	if most < 0 {
		plans.Clear()
		return C.CHORUS_OK
	}
	return fail(plans.SetMost(int(most)))
}
