package kern

import (
	"math"
	"unsafe"
)

// The folds combine src into acc, element by element. Both have the same length.

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type ordered interface {
	integer | float32 | float64
}

func sum[T ordered](acc, src []T) {
	src = src[:len(acc)]
	for i := range acc {
		acc[i] += src[i]
	}
}

func product[T ordered](acc, src []T) {
	src = src[:len(acc)]
	for i := range acc {
		acc[i] *= src[i]
	}
}

func minimum[T ordered](acc, src []T) {
	src = src[:len(acc)]
	for i := range acc {
		acc[i] = min(acc[i], src[i])
	}
}

func maximum[T ordered](acc, src []T) {
	src = src[:len(acc)]
	for i := range acc {
		acc[i] = max(acc[i], src[i])
	}
}

func bitAnd(acc, src []uint8) {
	src = src[:len(acc)]
	for i := range acc {
		acc[i] &= src[i]
	}
}

func bitOr(acc, src []uint8) {
	src = src[:len(acc)]
	for i := range acc {
		acc[i] |= src[i]
	}
}

func bitXor(acc, src []uint8) {
	src = src[:len(acc)]
	for i := range acc {
		acc[i] ^= src[i]
	}
}

// The products of complex numbers convert each product explicitly, which forbids fusing it with the addition: arm64 and
// amd64 must give the same bits.

func product64(acc, src []complex64) {
	src = src[:len(acc)]
	for i, a := range acc {
		b := src[i]
		acc[i] = complex(
			float32(real(a)*real(b))-float32(imag(a)*imag(b)),
			float32(real(a)*imag(b))+float32(imag(a)*real(b)))
	}
}

func product128(acc, src []complex128) {
	src = src[:len(acc)]
	for i, a := range acc {
		b := src[i]
		acc[i] = complex(
			float64(real(a)*real(b))-float64(imag(a)*imag(b)),
			float64(real(a)*imag(b))+float64(imag(a)*real(b)))
	}
}

// nan is the NaN that reductions give. Which one an addition gives depends on the processor, on the order of its
// operands and on the compiler; all ranks must have the same bits.
var nan = math.Float64frombits(0x7ff8 << 48)

// oneNaN replaces every NaN by the one that reductions give.
func oneNaN[T float32 | float64](values []T) {
	for i, v := range values {
		if v != v {
			values[i] = T(nan)
		}
	}
}

func oneNaN64(values []complex64) {
	oneNaN(unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(values))), 2*len(values)))
}

func oneNaN128(values []complex128) {
	oneNaN(unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(values))), 2*len(values)))
}

func scale[T float32 | float64](values []T, c float64) {
	for i := range values {
		values[i] *= T(c)
	}
}

func divide[T float32 | float64](values []T, c float64) {
	for i := range values {
		values[i] /= T(c)
	}
}

// truncate divides by a positive integer. It computes with 64 bits, as the divisor need not fit T.
func truncate[T integer](values []T, c float64) {
	if ^T(0) < 0 {
		by := int64(c)
		for i, v := range values {
			values[i] = T(int64(v) / by)
		}
		return
	}
	by := uint64(c)
	for i, v := range values {
		values[i] = T(uint64(v) / by)
	}
}
