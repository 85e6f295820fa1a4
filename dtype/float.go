package dtype

import "math"

// F16 holds the bits of an IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits. Largest number 65504.
type F16 uint16

// BF16 holds the bits of a bfloat16: 1 sign, 8 exponent and 7 fraction bits, the upper half of a float32.
type BF16 uint16

// F8E4M3FN holds the bits of an 8-bit float with 4 exponent and 3 fraction bits, without infinities. The exponent of
// all ones holds ordinary numbers up to 448 and, with a fraction of all ones, NaN. ("FN": finite, NaN.) The format is
// that of "FP8 Formats for Deep Learning", Micikevicius et al., 2022.
type F8E4M3FN uint8

// F8E5M2 holds the bits of an 8-bit float with 5 exponent and 2 fraction bits: the upper half of an F16, infinities
// included. Largest number 57344.
type F8E5M2 uint8

const (
	f32Sign = 1 << 31
	f32Inf  = 0xff << 23
	f32Bias = 127
)

// Float32 returns the value of h, exactly.
func (h F16) Float32() float32 { return widen(uint32(h>>15)<<31, uint32(h&0x7fff), 10, 15, 0x7c00) }

// Float64 returns the value of h, exactly.
func (h F16) Float64() float64 { return float64(h.Float32()) }

// IsNaN reports whether h is not a number.
func (h F16) IsNaN() bool { return h&0x7fff > 0x7c00 }

// F16FromFloat32 rounds f to the nearest F16, ties to even.
func F16FromFloat32(f float32) F16 {
	b := math.Float32bits(f)
	sign, abs := F16(b>>16)&0x8000, b&^f32Sign
	switch {
	case abs > f32Inf:
		return sign | 0x7e00
	case abs >= 0x47800000: // 65536
		return sign | 0x7c00
	}
	return sign | F16(narrow(abs, 10, 15))
}

// F16FromFloat64 rounds f to the nearest F16, ties to even.
func F16FromFloat64(f float64) F16 { return F16FromFloat32(roundToOdd(f)) }

// Float32 returns the value of h, exactly.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }

// Float64 returns the value of h, exactly.
func (h BF16) Float64() float64 { return float64(h.Float32()) }

// IsNaN reports whether h is not a number.
func (h BF16) IsNaN() bool { return h&0x7fff > 0x7f80 }

// BF16FromFloat32 rounds f to the nearest BF16, ties to even.
func BF16FromFloat32(f float32) BF16 {
	b := math.Float32bits(f)
	if f != f {
		return BF16(b>>16) | 0x40 // quiet, so that a payload in the lower half alone does not become infinity
	}
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// BF16FromFloat64 rounds f to the nearest BF16, ties to even.
func BF16FromFloat64(f float64) BF16 { return BF16FromFloat32(roundToOdd(f)) }

// Float32 returns the value of h, exactly.
func (h F8E4M3FN) Float32() float32 { return e4m3Values[h] }

// Float64 returns the value of h, exactly.
func (h F8E4M3FN) Float64() float64 { return float64(e4m3Values[h]) }

// IsNaN reports whether h is not a number.
func (h F8E4M3FN) IsNaN() bool { return h&0x7f == 0x7f }

// F8E4M3FNFromFloat32 rounds f to the nearest F8E4M3FN, ties to even. Numbers beyond 448, infinities included, become
// 448.
func F8E4M3FNFromFloat32(f float32) F8E4M3FN {
	b := math.Float32bits(f)
	sign, abs := F8E4M3FN(b>>24)&0x80, b&^f32Sign
	switch {
	case abs > f32Inf:
		return sign | 0x7f
	case abs >= 0x43e00000: // 448
		return sign | 0x7e
	}
	return sign | F8E4M3FN(narrow(abs, 3, 7))
}

// F8E4M3FNFromFloat64 rounds f to the nearest F8E4M3FN, ties to even. Numbers beyond 448, infinities included, become
// 448.
func F8E4M3FNFromFloat64(f float64) F8E4M3FN { return F8E4M3FNFromFloat32(roundToOdd(f)) }

// Float32 returns the value of h, exactly.
func (h F8E5M2) Float32() float32 { return F16(uint16(h) << 8).Float32() }

// Float64 returns the value of h, exactly.
func (h F8E5M2) Float64() float64 { return float64(h.Float32()) }

// IsNaN reports whether h is not a number.
func (h F8E5M2) IsNaN() bool { return h&0x7f > 0x7c }

// F8E5M2FromFloat32 rounds f to the nearest F8E5M2, ties to even.
func F8E5M2FromFloat32(f float32) F8E5M2 {
	b := math.Float32bits(f)
	sign, abs := F8E5M2(b>>24)&0x80, b&^f32Sign
	switch {
	case abs > f32Inf:
		return sign | 0x7f
	case abs >= 0x47800000: // 65536
		return sign | 0x7c
	}
	return sign | F8E5M2(narrow(abs, 2, 15))
}

// F8E5M2FromFloat64 rounds f to the nearest F8E5M2, ties to even.
func F8E5M2FromFloat64(f float64) F8E5M2 { return F8E5M2FromFloat32(roundToOdd(f)) }

var e4m3Values = func() (v [256]float32) {
	for i := range v {
		v[i] = widen(uint32(i>>7)<<31, uint32(i&0x7f), 3, 7, 0x80)
		if F8E4M3FN(i).IsNaN() {
			v[i] = float32(math.NaN())
		}
	}
	return v
}()

// narrow rounds the float32 with bits abs, which is neither negative nor NaN, to a format with man fraction bits and
// the given exponent bias, and returns the bits. A value beyond the format's range continues the encoding upwards.
func narrow(abs, man, bias uint32) uint32 {
	drop := 23 - man
	if abs < (f32Bias+1-bias)<<23 {
		// Subnormal in the target. Adding the power of two whose last bit weighs as much as the target's
		// makes the addition round in the right place.
		power := (f32Bias + 24 - bias - man) << 23
		return math.Float32bits(math.Float32frombits(abs)+math.Float32frombits(power)) - power
	}
	half := uint32(1)<<(drop-1) - 1 + abs>>drop&1 // just under half a unit, or half of one before an odd digit
	return (abs - (f32Bias-bias)<<23 + half) >> drop
}

// widen is the inverse of narrow; abs values from inf upwards are infinity and NaN.
func widen(sign, abs, man, bias, inf uint32) float32 {
	drop := 23 - man
	switch {
	case abs >= inf:
		return math.Float32frombits(sign | f32Inf | abs<<drop)
	case abs < 1<<man: // subnormal: put the digits under a power of two, then take that away
		power := (f32Bias + 24 - bias - man) << 23
		f := math.Float32frombits(power|abs) - math.Float32frombits(power)
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (abs<<drop + (f32Bias-bias)<<23))
}

// roundToOdd rounds f to a float32. An inexact result takes the neighbour whose last bit is 1. Rounding the result to
// nearest, to at least two digits fewer, then gives the same as rounding f directly. (Boldo and Melquiond, "Emulation
// of FMA and correctly rounded sums", 2008.)
func roundToOdd(f float64) float32 {
	r := float32(f)
	back := float64(r)
	if back == f || f != f {
		return r
	}
	b := math.Float32bits(r)
	if b&1 == 0 {
		if math.Abs(back) > math.Abs(f) {
			b--
		} else {
			b++
		}
	}
	return math.Float32frombits(b)
}
