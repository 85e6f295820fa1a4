package dtype

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// format is one narrow type as the tests see it: codes of bits bits, whose values are checked against arithmetic that
// shares nothing with the code under test.
type format struct {
	name      string
	bits      int
	man, bias int
	inf       int // code of infinity; for e4m3fn that of NaN, where 480 would be
	over      int // code of what is too large
	value     func(code int) float32
	value64   func(code int) float64
	isNaN     func(code int) bool
	from32    func(float32) int
	from64    func(float64) int
}

var formats = []format{
	{"f16", 16, 10, 15, 0x7c00, 0x7c00,
		func(c int) float32 { return F16(c).Float32() }, func(c int) float64 { return F16(c).Float64() },
		func(c int) bool { return F16(c).IsNaN() },
		func(f float32) int { return int(F16FromFloat32(f)) }, func(f float64) int { return int(F16FromFloat64(f)) }},
	{"bf16", 16, 7, 127, 0x7f80, 0x7f80,
		func(c int) float32 { return BF16(c).Float32() }, func(c int) float64 { return BF16(c).Float64() },
		func(c int) bool { return BF16(c).IsNaN() },
		func(f float32) int { return int(BF16FromFloat32(f)) }, func(f float64) int { return int(BF16FromFloat64(f)) }},
	{"f8e4m3fn", 8, 3, 7, 0x7f, 0x7e,
		func(c int) float32 { return F8E4M3FN(c).Float32() }, func(c int) float64 { return F8E4M3FN(c).Float64() },
		func(c int) bool { return F8E4M3FN(c).IsNaN() },
		func(f float32) int { return int(F8E4M3FNFromFloat32(f)) },
		func(f float64) int { return int(F8E4M3FNFromFloat64(f)) }},
	{"f8e5m2", 8, 2, 15, 0x7c, 0x7c,
		func(c int) float32 { return F8E5M2(c).Float32() }, func(c int) float64 { return F8E5M2(c).Float64() },
		func(c int) bool { return F8E5M2(c).IsNaN() },
		func(f float32) int { return int(F8E5M2FromFloat32(f)) }, func(f float64) int { return int(F8E5M2FromFloat64(f)) }},
}

// exact computes the value of a non-negative code from the definition. The code of infinity gives the value of its bits
// in a format without infinity, which is where rounding starts to overflow.
func (f *format) exact(code int) float64 {
	exp, frac := code>>f.man, code&(1<<f.man-1)
	if exp == 0 {
		return math.Ldexp(float64(frac), 1-f.bias-f.man)
	}
	return math.Ldexp(float64(frac+1<<f.man), exp-f.bias-f.man)
}

func each(t *testing.T, check func(t *testing.T, f *format)) {
	for i := range formats {
		t.Run(formats[i].name, func(t *testing.T) { check(t, &formats[i]) })
	}
}

func TestWiden(t *testing.T) {
	each(t, func(t *testing.T, f *format) {
		sign := 1 << (f.bits - 1)
		for code := range sign {
			for _, c := range []int{code, code | sign} {
				got := float64(f.value(c))
				if got64 := f.value64(c); math.Float64bits(got64) != math.Float64bits(got) && got == got {
					t.Fatalf("%#x: Float64 %v, Float32 %v", c, got64, got)
				}
				switch {
				case code > f.inf || code == f.inf && f.over != f.inf:
					if got == got || !f.isNaN(c) || f.value64(c) == f.value64(c) {
						t.Fatalf("%#x is %v, want NaN", c, got)
					}
					continue
				case f.isNaN(c):
					t.Fatalf("%#x: IsNaN of %v", c, got)
				}
				want := f.exact(code)
				if code == f.inf {
					want = math.Inf(1)
				}
				if c != code {
					want = -want
				}
				if got != want || math.Signbit(got) != math.Signbit(want) {
					t.Fatalf("%#x is %v, want %v", c, got, want)
				}
			}
		}
	})
}

// Every value converts back to its own code; NaN converts to NaN, keeping its sign.
func TestRoundTrip(t *testing.T) {
	each(t, func(t *testing.T, f *format) {
		for c := range 1 << f.bits {
			got32, got64 := f.from32(f.value(c)), f.from64(f.value64(c))
			if f.isNaN(c) {
				if !f.isNaN(got32) || !f.isNaN(got64) {
					t.Fatalf("NaN %#x came back as %#x and %#x", c, got32, got64)
				}
			} else if got32 != c || got64 != c {
				t.Fatalf("%#x came back as %#x and %#x", c, got32, got64)
			}
		}
	})
}

// Every midpoint between two neighbours goes to the even one, and whatever lies next to the midpoint goes to its own
// side. The midpoint above the largest number decides about overflow.
func TestMidpoints(t *testing.T) {
	each(t, func(t *testing.T, f *format) {
		sign := 1 << (f.bits - 1)
		for code := range f.inf {
			mid := (f.exact(code) + f.exact(code+1)) / 2
			even := code + code&1
			for _, try := range []struct {
				x    float64
				want int
			}{
				{mid, min(even, f.over)},
				{math.Nextafter(mid, 0), code},
				{math.Nextafter(mid, math.Inf(1)), min(code+1, f.over)},
			} {
				if got := f.from64(try.x); got != try.want {
					t.Fatalf("from64(%v) = %#x, want %#x", try.x, got, try.want)
				}
				if got := f.from64(-try.x); got != try.want|sign {
					t.Fatalf("from64(%v) = %#x, want %#x", -try.x, got, try.want|sign)
				}
			}
			m := float32(mid)
			if float64(m) != mid { // beyond float32: only where bf16 ends
				continue
			}
			for _, try := range []struct {
				x    float32
				want int
			}{
				{m, min(even, f.over)},
				{math.Nextafter32(m, 0), code},
				{math.Nextafter32(m, float32(math.Inf(1))), min(code+1, f.over)},
			} {
				if got := f.from32(try.x); got != try.want {
					t.Fatalf("from32(%v) = %#x, want %#x", try.x, got, try.want)
				}
				if got := f.from32(-try.x); got != try.want|sign {
					t.Fatalf("from32(%v) = %#x, want %#x", -try.x, got, try.want|sign)
				}
			}
		}
	})
}

// Overflow and the other special values, in both widths.
func TestSpecial(t *testing.T) {
	inf := math.Inf(1)
	each(t, func(t *testing.T, f *format) {
		sign := 1 << (f.bits - 1)
		for _, x := range []float64{f.exact(f.inf), 2 * f.exact(f.inf-1), math.MaxFloat32, 1e300, math.MaxFloat64, inf} {
			if f.name == "bf16" && x < f.exact(f.inf) && x != math.MaxFloat32 {
				continue
			}
			for _, got := range []int{f.from64(x), f.from32(float32(x))} {
				if got != f.over {
					t.Errorf("%v gives %#x, want overflow to %#x", x, got, f.over)
				}
			}
			for _, got := range []int{f.from64(-x), f.from32(float32(-x))} {
				if got != f.over|sign {
					t.Errorf("%v gives %#x, want overflow to %#x", -x, got, f.over|sign)
				}
			}
		}
		for _, x := range []float64{math.SmallestNonzeroFloat64, 1e-60, 0} {
			if got, neg := f.from64(x), f.from64(-x); got != 0 || neg != sign && x != 0 {
				t.Errorf("%v gives %#x and, negated, %#x; want zeros of their signs", x, got, neg)
			}
		}
		if got := f.from64(math.Copysign(0, -1)); got != sign {
			t.Errorf("-0 gives %#x", got)
		}
		for _, b := range []uint32{0x7fc00000, 0x7f800001, 0xff800001, 0xffffffff, 0x7fbfffff} {
			n := math.Float32frombits(b)
			if got, got64 := f.from32(n), f.from64(float64(n)); !f.isNaN(got) || !f.isNaN(got64) {
				t.Errorf("NaN %#x gives %#x and %#x", b, got, got64)
			}
		}
	})
}

// Random float64: the result must be the nearest of the codes around it, found by comparing exact distances.
func TestNearest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	each(t, func(t *testing.T, f *format) {
		for range 200_000 {
			code := r.IntN(f.inf)
			lo, hi := f.exact(code), f.exact(code+1)
			x := lo + (hi-lo)*r.Float64()
			if r.IntN(4) == 0 { // close to the midpoint, where rounding twice goes wrong
				x = (lo+hi)/2 + (hi-lo)*math.Ldexp(r.Float64()-0.5, -r.IntN(50))
			}
			down, up := x-lo, hi-x // exact: neighbours are within a factor of two, or lo is 0
			want := code
			if up < down || up == down && code&1 == 1 {
				want = min(code+1, f.over)
			}
			if got := f.from64(x); got != want {
				t.Fatalf("from64(%v) = %#x, want %#x", x, got, want)
			}
		}
	})
}

func ExampleBF16FromFloat32() {
	x := BF16FromFloat32(3.14159)
	fmt.Printf("%#x %v\n", uint16(x), x.Float32())
	// Output: 0x4049 3.140625
}

func BenchmarkNarrow(b *testing.B) {
	for _, f := range formats {
		b.Run(f.name, func(b *testing.B) {
			sum := 0
			for i := range b.N {
				sum += f.from32(float32(i))
			}
			sink = sum
		})
	}
}

var sink int
