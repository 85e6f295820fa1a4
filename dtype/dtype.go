package dtype

import (
	"fmt"
	"strings"
)

// DType names the type of a tensor's elements. The numbers are wire format, see the package comment.
type DType uint8

const (
	Invalid      DType = 0  // the zero value: no type
	Bool         DType = 1  // one byte, 0 or 1
	Uint8        DType = 2  //
	Uint16       DType = 3  //
	Uint32       DType = 4  //
	Uint64       DType = 5  //
	Int8         DType = 6  //
	Int16        DType = 7  //
	Int32        DType = 8  //
	Int64        DType = 9  //
	Float16      DType = 10 // IEEE 754 binary16, see [F16]
	BFloat16     DType = 11 // the upper half of a float32, see [BF16]
	Float8E4M3FN DType = 12 // see [F8E4M3FN]
	Float8E5M2   DType = 13 // see [F8E5M2]
	Float32      DType = 14 //
	Float64      DType = 15 //
	Complex64    DType = 16 // two float32: real, imaginary
	Complex128   DType = 17 // two float64: real, imaginary

	// Count is one more than the largest DType: the length of an array indexed by one.
	Count = 18
)

// info holds what there is to know about one type.
type info struct {
	name  string // as PyTorch writes it
	short string
	size  int // bytes
	kind  kind
}

type kind uint8

const (
	boolean kind = iota + 1
	unsigned
	signed
	floating
	complexed
)

var table = [Count]info{
	Invalid:      {"invalid", "", 0, 0},
	Bool:         {"bool", "b8", 1, boolean},
	Uint8:        {"uint8", "u8", 1, unsigned},
	Uint16:       {"uint16", "u16", 2, unsigned},
	Uint32:       {"uint32", "u32", 4, unsigned},
	Uint64:       {"uint64", "u64", 8, unsigned},
	Int8:         {"int8", "i8", 1, signed},
	Int16:        {"int16", "i16", 2, signed},
	Int32:        {"int32", "i32", 4, signed},
	Int64:        {"int64", "i64", 8, signed},
	Float16:      {"float16", "f16", 2, floating},
	BFloat16:     {"bfloat16", "bf16", 2, floating},
	Float8E4M3FN: {"float8_e4m3fn", "f8e4m3fn", 1, floating},
	Float8E5M2:   {"float8_e5m2", "f8e5m2", 1, floating},
	Float32:      {"float32", "f32", 4, floating},
	Float64:      {"float64", "f64", 8, floating},
	Complex64:    {"complex64", "c64", 8, complexed},
	Complex128:   {"complex128", "c128", 16, complexed},
}

// aliases are further names that [Parse] knows: PyTorch's C-like ones and those of the safetensors format.
var aliases = map[string]DType{
	"byte": Uint8, "char": Int8, "short": Int16, "int": Int32, "long": Int64,
	"half": Float16, "float": Float32, "double": Float64, "cfloat": Complex64, "cdouble": Complex128,
	"f8e4m3": Float8E4M3FN, "f8_e4m3": Float8E4M3FN, "float8_e4m3": Float8E4M3FN, "f8_e5m2": Float8E5M2,
}

var byName = func() map[string]DType {
	m := make(map[string]DType, 2*Count+len(aliases))
	for name, d := range aliases {
		m[name] = d
	}
	for _, d := range All() {
		m[table[d].name], m[table[d].short] = d, d
	}
	return m
}()

// All returns every valid type in the order of their numbers. The slice is the caller's.
func All() []DType {
	all := make([]DType, 0, Count-1)
	for d := Invalid + 1; d < Count; d++ {
		all = append(all, d)
	}
	return all
}

// Parse finds a type by its PyTorch name ("float32", also "torch.float32" and "float"), its short form ("f32") or
// its name in a safetensors file ("F32"). Case does not matter.
func Parse(name string) (DType, error) {
	if d, ok := byName[strings.TrimPrefix(strings.ToLower(name), "torch.")]; ok {
		return d, nil
	}
	names := make([]string, 0, Count-1)
	for _, d := range All() {
		names = append(names, table[d].name)
	}
	return Invalid, fmt.Errorf("dtype: unknown element type %q, want one of %s", name, strings.Join(names, ", "))
}

// Valid reports whether d is one of the types listed above; a number from a header must be checked with it.
func (d DType) Valid() bool { return d > Invalid && d < Count }

// Size returns the bytes of one element, 0 for a type that is not valid.
func (d DType) Size() int {
	if d >= Count {
		return 0
	}
	return table[d].size
}

// String returns PyTorch's name of the type.
func (d DType) String() string {
	if d >= Count {
		return fmt.Sprintf("invalid(%d)", uint8(d))
	}
	return table[d].name
}

// Short returns the short form of the name, such as "f32" or "bf16".
func (d DType) Short() string {
	if !d.Valid() {
		return d.String()
	}
	return table[d].short
}

// IsFloating reports whether d is a real floating-point type of any width.
func (d DType) IsFloating() bool { return d.Valid() && table[d].kind == floating }

// IsComplex reports whether d is a complex type.
func (d DType) IsComplex() bool { return d.Valid() && table[d].kind == complexed }

// IsInteger reports whether d is a signed or unsigned integer. Bool is not an integer.
func (d DType) IsInteger() bool {
	return d.Valid() && (table[d].kind == signed || table[d].kind == unsigned)
}

// IsSigned reports whether elements can be negative: signed integers, floating-point and complex types.
func (d DType) IsSigned() bool { return d.Valid() && table[d].kind >= signed }
