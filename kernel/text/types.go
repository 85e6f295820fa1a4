package text

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
)

// Stored is the C type of an element in memory.
func Stored(t dtype.DType) string {
	switch t {
	case dtype.Bool, dtype.Float8E4M3FN, dtype.Float8E5M2:
		return "u8"
	case dtype.Float16, dtype.BFloat16:
		return "u16"
	}
	return t.Short()
}

// Supported reports whether kernels have elements of a type. Those of 8 bits are of scaled products alone.
func Supported(t dtype.DType) bool { return t.Valid() && !IsFloat8(t) }

func IsFloat8(t dtype.DType) bool { return t == dtype.Float8E4M3FN || t == dtype.Float8E5M2 }

// Opmath is the type that an operation on elements of a type computes in, as PyTorch's opmath_t: float32 for the
// floating-point types of 16 bits, else the type itself.
func Opmath(t dtype.DType) dtype.DType {
	if t == dtype.Float16 || t == dtype.BFloat16 {
		return dtype.Float32
	}
	return t
}

// Real is the type of the parts of a complex type, or else the type itself.
func Real(t dtype.DType) dtype.DType {
	switch t {
	case dtype.Complex64:
		return dtype.Float32
	case dtype.Complex128:
		return dtype.Float64
	}
	return t
}

func Is64(t dtype.DType) bool { return t == dtype.Float64 || t == dtype.Complex128 }

// widened is an element as it's in memory as a number, and that number's type.
func widened(t dtype.DType, x string) (string, dtype.DType) {
	switch t {
	case dtype.Bool:
		return "(" + x + " != 0)", dtype.Bool
	case dtype.Float16, dtype.BFloat16, dtype.Float8E4M3FN, dtype.Float8E5M2:
		return "from_" + t.Short() + "(" + x + ")", dtype.Float32
	}
	return x, t
}

// Converted is an expression of a type in memory or of computing as one of another type.
func Converted(to, from dtype.DType, x string) string {
	x, from = widened(from, x)
	return Narrowed(to, from, x)
}

// Narrowed is a number of a type that is computed in, as an element of a type.
func Narrowed(to, from dtype.DType, x string) string {
	switch {
	case to == from && to != dtype.Bool:
		return x
	case to.IsComplex() && from.IsComplex():
		r := Real(to).Short()
		return fmt.Sprintf("make_%s((%s)%s.re, (%s)%s.im)", to.Short(), r, x, r, x)
	case to.IsComplex():
		return fmt.Sprintf("make_%s((%s)%s, 0)", to.Short(), Real(to).Short(), x)
	case to == dtype.Bool && from.IsComplex():
		return fmt.Sprintf("(%s.re != 0 || %s.im != 0)", x, x)
	case to == dtype.Bool:
		return "(" + x + " != 0)"
	case from.IsComplex():
		return Narrowed(to, Real(from), x+".re")
	case to == dtype.Float16 || to == dtype.BFloat16 || IsFloat8(to):
		return "to_" + to.Short() + "((f32)" + x + ")"
	case to.IsInteger() && from.IsFloating() && to.Size() < 8: // as PyTorch's CPU, whose bits count out of range
		if to.IsSigned() {
			return "(" + to.Short() + ")(i32)" + x
		}
		return "(" + to.Short() + ")(i64)" + x
	}
	return "(" + to.Short() + ")" + x
}

// Zero is 0 of a type that's computed in.
func Zero(compute dtype.DType) string {
	if compute.IsComplex() {
		return "c_make(0, 0)"
	}
	return "0"
}

// MultiplyAdd is the statement sum += x * y.
func MultiplyAdd(compute dtype.DType, sum, x, y string) string {
	if compute.IsComplex() {
		return sum + " = c_add(" + sum + ", c_mul(" + x + ", " + y + "));"
	}
	return sum + " += " + x + " * " + y + ";"
}

// Computed is a number of a call as T.
func Computed(t dtype.DType, x string) string {
	switch {
	case t.IsComplex():
		return x
	case t == dtype.Bool:
		return "(" + x + " != 0)"
	}
	return "(T)" + x
}
