package dtype

import (
	"strings"
	"testing"
	"unsafe"
)

// The numbers are wire format: this test fails when they change.
func TestNumbers(t *testing.T) {
	want := "1 bool 1,2 uint8 1,3 uint16 2,4 uint32 4,5 uint64 8,6 int8 1,7 int16 2,8 int32 4,9 int64 8," +
		"10 float16 2,11 bfloat16 2,12 float8_e4m3fn 1,13 float8_e5m2 1,14 float32 4,15 float64 8,16 complex64 8,17 complex128 16"
	var got []string
	for _, d := range All() {
		got = append(got, strings.Join([]string{itoa(int(d)), d.String(), itoa(d.Size())}, " "))
	}
	if s := strings.Join(got, ","); s != want {
		t.Errorf("types are\n%s\nwant\n%s", s, want)
	}
}

func itoa(i int) string {
	if i < 10 {
		return string(rune('0' + i))
	}
	return itoa(i/10) + itoa(i%10)
}

func TestParse(t *testing.T) {
	for _, d := range All() {
		for _, name := range []string{d.String(), d.Short(), "torch." + d.String(), strings.ToUpper(d.Short())} {
			if got, err := Parse(name); err != nil || got != d {
				t.Errorf("Parse(%q) = %v, %v; want %v", name, got, err, d)
			}
		}
	}
	for name, want := range map[string]DType{"half": Float16, "F8_E4M3": Float8E4M3FN, "f8e4m3": Float8E4M3FN,
		"F8_E5M2": Float8E5M2, "long": Int64} {
		if got, err := Parse(name); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v; want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"", "invalid", "f33", "torch.", "invalid(18)"} {
		if got, err := Parse(name); err == nil || got != Invalid || !strings.Contains(err.Error(), "float8_e4m3fn") {
			t.Errorf("Parse(%q) = %v, %v; want an error that lists the names", name, got, err)
		}
	}
}

func TestNotValid(t *testing.T) {
	for _, d := range []DType{Invalid, Count, 255} {
		if d.Valid() || d.Size() != 0 || d.IsFloating() || d.IsComplex() || d.IsInteger() || d.IsSigned() {
			t.Errorf("%v claims to be a type", d)
		}
		if !strings.HasPrefix(d.String(), "invalid") || !strings.HasPrefix(d.Short(), "invalid") {
			t.Errorf("%d is called %v", uint8(d), d)
		}
	}
}

func TestKinds(t *testing.T) {
	for _, d := range All() {
		name := d.String()
		float := strings.HasPrefix(name, "float") || strings.HasPrefix(name, "bfloat")
		cplx := strings.HasPrefix(name, "complex")
		integer := strings.Contains(name, "int")
		signed := float || cplx || strings.HasPrefix(name, "int")
		if d.IsFloating() != float || d.IsComplex() != cplx || d.IsInteger() != integer || d.IsSigned() != signed {
			t.Errorf("%v: floating %v, complex %v, integer %v, signed %v", d, d.IsFloating(), d.IsComplex(), d.IsInteger(),
				d.IsSigned())
		}
	}
}

func testOf[T Element](t *testing.T, want DType) {
	t.Helper()
	var v T
	if got := Of[T](); got != want || got.Size() != int(unsafe.Sizeof(v)) {
		t.Errorf("Of[%T] = %v of %d bytes, want %v", v, got, got.Size(), want)
	}
}

func TestOf(t *testing.T) {
	testOf[bool](t, Bool)
	testOf[uint8](t, Uint8)
	testOf[uint16](t, Uint16)
	testOf[uint32](t, Uint32)
	testOf[uint64](t, Uint64)
	testOf[int8](t, Int8)
	testOf[int16](t, Int16)
	testOf[int32](t, Int32)
	testOf[int64](t, Int64)
	testOf[F16](t, Float16)
	testOf[BF16](t, BFloat16)
	testOf[F8E4M3FN](t, Float8E4M3FN)
	testOf[F8E5M2](t, Float8E5M2)
	testOf[float32](t, Float32)
	testOf[float64](t, Float64)
	testOf[complex64](t, Complex64)
	testOf[complex128](t, Complex128)
}

func FuzzParse(f *testing.F) {
	f.Add("torch.float32")
	f.Add("F8_E4M3")
	f.Add("")
	f.Fuzz(func(t *testing.T, name string) {
		d, err := Parse(name)
		if (err == nil) != d.Valid() {
			t.Fatalf("Parse(%q) = %v, %v: want an error or a valid type, not both", name, d, err)
		}
	})
}
