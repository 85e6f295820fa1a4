package kern

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// Convert writes n elements of type srcType at src as elements of type dstType at dst. Memory must not overlap, except
// that dst may be src if the types have the same size.
//
//   - To a floating-point type: rounded once, to nearest, ties to even; too large becomes infinity (448 in
//     Float8E4M3FN).
//   - From a floating-point type to an integer: towards zero; beyond the type's range its nearest end; NaN becomes 0.
//   - Between integers: the low bits, as in Go and C.
//   - To bool: 1 unless the value is zero (NaN is not). From bool: 0 or 1.
//   - To a complex type: the imaginary part is 0. From a complex type: the real part; to bool, whether any part is not
//     zero.
func Convert(dstType dtype.DType, dst unsafe.Pointer, srcType dtype.DType, src unsafe.Pointer, n int) {
	if !dstType.Valid() || !srcType.Valid() || n < 0 {
		panic(fmt.Sprintf("kern: conversion of %d elements from %v to %v", n, srcType, dstType))
	}
	if dstType == srcType {
		Copy(dst, src, n*dstType.Size())
		return
	}
	if dstType.IsComplex() && srcType.IsComplex() {
		dstType, _ = parts(dstType, n)
		srcType, n = parts(srcType, n)
	}
	each(&active.convert[srcType][dstType], &portable.convert[srcType][dstType], dst, src, n, dstType.Size(),
		srcType.Size(), 0)
}

// number holds a type's lenses for each of the three widest types, through which any type converts to any other
// without being rounded on the way. All can be written; only that of the type's own kind, named by reads, is read.
type number struct {
	reads    byte // 'i', 'u' or 'f'
	signed   lens[int64]
	unsigned lens[uint64]
	float    lens[float64]
}

func fillConversions(table *[dtype.Count][dtype.Count]mapKernel) {
	numbers := [dtype.Count]number{
		dtype.Bool:         truth(),
		dtype.Uint8:        whole[uint8]('u', 0, math.MaxUint8),
		dtype.Uint16:       whole[uint16]('u', 0, math.MaxUint16),
		dtype.Uint32:       whole[uint32]('u', 0, math.MaxUint32),
		dtype.Uint64:       whole[uint64]('u', 0, math.MaxUint64),
		dtype.Int8:         whole[int8]('i', math.MinInt8, math.MaxInt8),
		dtype.Int16:        whole[int16]('i', math.MinInt16, math.MaxInt16),
		dtype.Int32:        whole[int32]('i', math.MinInt32, math.MaxInt32),
		dtype.Int64:        whole[int64]('i', math.MinInt64, math.MaxInt64),
		dtype.Float16:      fraction(dtype.F16.Float64, dtype.F16FromFloat64),
		dtype.BFloat16:     fraction(dtype.BF16.Float64, dtype.BF16FromFloat64),
		dtype.Float8E4M3FN: fraction(dtype.F8E4M3FN.Float64, dtype.F8E4M3FNFromFloat64),
		dtype.Float8E5M2:   fraction(dtype.F8E5M2.Float64, dtype.F8E5M2FromFloat64),
		dtype.Float32: {'f',
			converting(nil, func(v int64) float32 { return float32(v) }),
			converting(nil, func(v uint64) float32 { return float32(v) }),
			converting(func(e float32) float64 { return float64(e) }, func(v float64) float32 { return float32(v) })},
		dtype.Float64: {'f',
			converting(nil, func(v int64) float64 { return float64(v) }),
			converting(nil, func(v uint64) float64 { return float64(v) }),
			inPlace[float64]()},
		dtype.Complex64: {'f',
			converting(nil, func(v int64) complex64 { return complex(float32(v), 0) }),
			converting(nil, func(v uint64) complex64 { return complex(float32(v), 0) }),
			converting(func(e complex64) float64 { return float64(real(e)) },
				func(v float64) complex64 { return complex(float32(v), 0) })},
		dtype.Complex128: {'f',
			converting(nil, func(v int64) complex128 { return complex(float64(v), 0) }),
			converting(nil, func(v uint64) complex128 { return complex(float64(v), 0) }),
			converting(func(e complex128) float64 { return real(e) }, func(v float64) complex128 { return complex(v, 0) })},
	}
	for _, s := range dtype.All() {
		for _, d := range dtype.All() {
			from, to := &numbers[s], &numbers[d]
			switch from.reads {
			case 'i':
				table[s][d] = through(from.signed, to.signed)
			case 'u':
				table[s][d] = through(from.unsigned, to.unsigned)
			case 'f':
				table[s][d] = through(from.float, to.float)
			}
		}
	}
	// Types that float32 holds exactly take the shorter way.
	singles := map[dtype.DType]lens[float32]{
		dtype.Float16: f16Lens, dtype.BFloat16: bf16Lens, dtype.Float8E4M3FN: e4m3Lens, dtype.Float8E5M2: e5m2Lens,
		dtype.Float32: inPlace[float32](),
	}
	for s, from := range singles {
		for d, to := range singles {
			table[s][d] = through(from, to)
		}
	}
	// A complex number is true if either part is.
	either := func(re, im float64) float64 {
		if re != 0 {
			return re
		}
		return im
	}
	toBool := numbers[dtype.Bool].float
	table[dtype.Complex64][dtype.Bool] = through(converting(func(e complex64) float64 {
		return either(float64(real(e)), float64(imag(e)))
	}, nil), toBool)
	table[dtype.Complex128][dtype.Bool] = through(converting(func(e complex128) float64 {
		return either(real(e), imag(e))
	}, nil), toBool)
}

// whole describes an integer type with the given range. A maximum that float64 can't hold rounds up, beyond the range;
// comparing with >= is right for both cases.
func whole[T integer](reads byte, lowest, highest float64) number {
	smallest, largest := T(0), ^T(0)
	if reads == 'i' {
		largest = T(uint64(1)<<(8*unsafe.Sizeof(largest)-1) - 1)
		smallest = ^largest
	}
	return number{reads,
		converting(func(e T) int64 { return int64(e) }, func(v int64) T { return T(v) }),
		converting(func(e T) uint64 { return uint64(e) }, func(v uint64) T { return T(v) }),
		converting(nil, func(v float64) T {
			switch {
			case v != v:
				return 0
			case v <= lowest:
				return smallest
			case v >= highest:
				return largest
			}
			return T(v)
		}),
	}
}

// fraction describes a narrow floating-point type E.
func fraction[E any](from func(E) float64, to func(float64) E) number {
	return number{'f',
		converting(nil, func(v int64) E {
			if v < 0 {
				return to(-oddFloat(-uint64(v)))
			}
			return to(oddFloat(uint64(v)))
		}),
		converting(nil, func(v uint64) E { return to(oddFloat(v)) }),
		converting(from, to),
	}
}

// truth describes bool.
func truth() number {
	one := func(b bool) uint8 {
		if b {
			return 1
		}
		return 0
	}
	return number{'u',
		converting(nil, func(v int64) uint8 { return one(v != 0) }),
		converting(func(e uint8) uint64 { return uint64(one(e != 0)) }, func(v uint64) uint8 { return one(v != 0) }),
		converting(nil, func(v float64) uint8 { return one(v != 0) }),
	}
}

// oddFloat rounds v to a float64 with an odd last digit if it has too many, so that rounding again to a narrow type
// gives what rounding v once would.
func oddFloat(v uint64) float64 {
	if v>>53 != 0 {
		const lost = 1<<11 - 1 // of 64 binary digits float64 keeps 53
		if v&lost != 0 {
			v = v&^lost | 1<<11
		}
	}
	return float64(v)
}
