package rng

import (
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// Float is an element type that continuous distributions fill.
type Float interface {
	float32 | float64 | dtype.F16 | dtype.BF16
}

// Number is an element type that discrete distributions fill. Booleans are 0 and 1.
type Number interface {
	Float | bool | uint8 | int8 | int16 | int32 | int64
}

// kind is what the distributions know of an element type.
type kind[T any] struct {
	from32  func(float32) T // rounds; nil but for floating point
	from64  func(float64) T // as PyTorch converts: into 16 bits by way of float32
	fromInt func(int64) T   // truncates, or rounds
	to64    func(T) float64 // nil but for floating point

	// The range of integers that are all exact, and whether Random takes 64 bits for one of them.
	least, largest int64
	wide           bool
}

// random is what [Random] goes up to, and whether it takes 64 bits for each number.
func (k kind[T]) random() (last int64, wide bool) { return k.largest, k.wide }

// integer makes the kind of an integer type.
func integer[T uint8 | int8 | int16 | int32 | int64](least, largest int64) kind[T] {
	return kind[T]{
		from64:  func(x float64) T { return T(int64(x)) },
		fromInt: func(x int64) T { return T(x) },
		least:   least, largest: largest, wide: largest == 1<<63-1,
	}
}

var (
	kindUint8 = integer[uint8](0, 1<<8-1)
	kindInt8  = integer[int8](-1<<7, 1<<7-1)
	kindInt16 = integer[int16](-1<<15, 1<<15-1)
	kindInt32 = integer[int32](-1<<31, 1<<31-1)
	kindInt64 = integer[int64](-1<<63, 1<<63-1)

	kindBool = kind[bool]{
		from64:  func(x float64) bool { return x != 0 },
		fromInt: func(x int64) bool { return x != 0 },
		largest: 1,
	}
	kindFloat32 = kind[float32]{
		from32:  func(x float32) float32 { return x },
		from64:  func(x float64) float32 { return float32(x) },
		fromInt: func(x int64) float32 { return float32(x) },
		to64:    func(x float32) float64 { return float64(x) },
		least:   -1 << 24, largest: 1 << 24,
	}
	kindFloat64 = kind[float64]{
		from32:  func(x float32) float64 { return float64(x) },
		from64:  func(x float64) float64 { return x },
		fromInt: func(x int64) float64 { return float64(x) },
		to64:    func(x float64) float64 { return x },
		least:   -1 << 53, largest: 1 << 53, wide: true,
	}
	kindF16 = kind[dtype.F16]{
		from32:  dtype.F16FromFloat32,
		from64:  func(x float64) dtype.F16 { return dtype.F16FromFloat32(float32(x)) },
		fromInt: func(x int64) dtype.F16 { return dtype.F16FromFloat32(float32(x)) },
		to64:    dtype.F16.Float64,
		least:   -1 << 11, largest: 1 << 11,
	}
	kindBF16 = kind[dtype.BF16]{
		from32:  dtype.BF16FromFloat32,
		from64:  func(x float64) dtype.BF16 { return dtype.BF16FromFloat32(float32(x)) },
		fromInt: func(x int64) dtype.BF16 { return dtype.BF16FromFloat32(float32(x)) },
		to64:    dtype.BF16.Float64,
		least:   -1 << 8, largest: 1 << 8,
	}
)

func kindOf[T Number]() *kind[T] {
	var k any
	switch any(*new(T)).(type) {
	case bool:
		k = &kindBool
	case uint8:
		k = &kindUint8
	case int8:
		k = &kindInt8
	case int16:
		k = &kindInt16
	case int32:
		k = &kindInt32
	case int64:
		k = &kindInt64
	case float32:
		k = &kindFloat32
	case float64:
		k = &kindFloat64
	case dtype.F16:
		k = &kindF16
	case dtype.BF16:
		k = &kindBF16
	}
	return k.(*kind[T])
}

func sizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

func isFloat64[T any]() bool {
	_, is := any(*new(T)).(float64)
	return is
}

// nearest rounds to the precision of T, which isn't float64.
func nearest[T Float](x float64) float32 {
	k := kindOf[T]()
	return float32(k.to64(k.from32(float32(x))))
}
