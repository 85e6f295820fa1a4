package kern

import (
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// lens says how elements in memory become values of type A, to compute with, and back.
type lens[A any] struct {
	size  int                                 // bytes of an element
	read  func(buf []A, p unsafe.Pointer) []A // the len(buf) elements at p, converted into buf or seen in place
	write func(p unsafe.Pointer, values []A)  // the reverse
}

// inPlace is the lens of a type that Go itself computes with.
func inPlace[T any]() lens[T] {
	return lens[T]{
		size:  int(unsafe.Sizeof(*new(T))),
		read:  func(buf []T, p unsafe.Pointer) []T { return unsafe.Slice((*T)(p), len(buf)) },
		write: func(p unsafe.Pointer, values []T) { copy(unsafe.Slice((*T)(p), len(values)), values) },
	}
}

// converting is a lens that converts one element of type E after the other.
func converting[E, A any](from func(E) A, to func(A) E) lens[A] {
	return lens[A]{
		size: int(unsafe.Sizeof(*new(E))),
		read: func(buf []A, p unsafe.Pointer) []A {
			for i, e := range unsafe.Slice((*E)(p), len(buf)) {
				buf[i] = from(e)
			}
			return buf
		},
		write: func(p unsafe.Pointer, values []A) {
			e := unsafe.Slice((*E)(p), len(values))
			for i, v := range values {
				e[i] = to(v)
			}
		},
	}
}

// The lenses of the narrow floats. Those of 16 bits are written out, as the compiler doesn't inline calls of function
// values.
var (
	f16Lens = lens[float32]{
		size: 2,
		read: func(buf []float32, p unsafe.Pointer) []float32 {
			for i, h := range unsafe.Slice((*dtype.F16)(p), len(buf)) {
				buf[i] = h.Float32()
			}
			return buf
		},
		write: func(p unsafe.Pointer, values []float32) {
			h := unsafe.Slice((*dtype.F16)(p), len(values))
			for i, v := range values {
				h[i] = dtype.F16FromFloat32(v)
			}
		},
	}
	bf16Lens = lens[float32]{
		size: 2,
		read: func(buf []float32, p unsafe.Pointer) []float32 {
			for i, h := range unsafe.Slice((*dtype.BF16)(p), len(buf)) {
				buf[i] = h.Float32()
			}
			return buf
		},
		write: func(p unsafe.Pointer, values []float32) {
			h := unsafe.Slice((*dtype.BF16)(p), len(values))
			for i, v := range values {
				h[i] = dtype.BF16FromFloat32(v)
			}
		},
	}
	e4m3Lens = converting(dtype.F8E4M3FN.Float32, dtype.F8E4M3FNFromFloat32)
	e5m2Lens = converting(dtype.F8E5M2.Float32, dtype.F8E5M2FromFloat32)
)
