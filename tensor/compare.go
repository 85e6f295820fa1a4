package tensor

import (
	"bytes"
	"math"
	"math/cmplx"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// mustBeOnHost panics with [device.ErrHostAccess] for tensors on a device.
func mustBeOnHost(list ...*Tensor) {
	for _, t := range list {
		if err := t.hostAccess("compare"); err != nil {
			panic(err)
		}
	}
}

// Equal reports whether two tensors have the same type, shape and elements. As in Go, NaN equals nothing and -0 equals
// 0.
func Equal(a, b *Tensor) bool {
	if a.dt != b.dt || !slices.Equal(a.shape, b.shape) {
		return false
	}
	mustBeOnHost(a, b)
	equal := true
	if a.numel == 0 {
		return equal
	}
	defer keep(a, b)
	if !a.dt.IsFloating() && !a.dt.IsComplex() { // bits decide
		size := a.dt.Size()
		pieces(a, b, a.dt, func(p, q unsafe.Pointer, n int) bool {
			equal = bytes.Equal(unsafe.Slice((*byte)(p), n*size), unsafe.Slice((*byte)(q), n*size))
			return equal
		})
		return equal
	}
	pieces(a, b, dtype.Complex128, func(p, q unsafe.Pointer, n int) bool {
		equal = slices.Equal(unsafe.Slice((*complex128)(p), n), unsafe.Slice((*complex128)(q), n))
		return equal
	})
	return equal
}

// AllClose reports whether two tensors have the same shape and |a-b| <= atol + rtol*|b| holds for all elements, which
// may be of different types and are compared as complex128. Equal infinities are close, NaN is close to nothing.
func AllClose(a, b *Tensor, rtol, atol float64) bool {
	if !slices.Equal(a.shape, b.shape) {
		return false
	}
	mustBeOnHost(a, b)
	close := true
	if a.numel == 0 {
		return close
	}
	defer keep(a, b)
	pieces(a, b, dtype.Complex128, func(p, q unsafe.Pointer, n int) bool {
		x, y := unsafe.Slice((*complex128)(p), n), unsafe.Slice((*complex128)(q), n)
		for i := range x {
			if x[i] == y[i] {
				continue
			}
			d := cmplx.Abs(x[i] - y[i])
			if close = d <= atol+rtol*cmplx.Abs(y[i]) && !math.IsInf(d, 0); !close {
				break
			}
		}
		return close
	})
	return close
}
