package kern

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// arithmetic applies f to the parts of every element: in float32 for narrow types, in float64 for wide ones.
func arithmetic(dst, src *memory, f32 func(float32) float32, f64 func(float64) float64) {
	part, n := parts(src.dt, src.n)
	for i := range n {
		d, s := unsafe.Add(dst.ptr(), i*part.Size()), unsafe.Add(src.ptr(), i*part.Size())
		switch part {
		case dtype.Float64:
			*(*float64)(d) = f64(*(*float64)(s))
		default:
			var x float32
			convertOne(dtype.Float32, unsafe.Pointer(&x), part, s)
			x = f32(x)
			convertOne(part, d, dtype.Float32, unsafe.Pointer(&x))
		}
	}
}

func TestScale(t *testing.T) {
	const most = 200
	for _, dt := range dtype.All() {
		if !dt.IsFloating() && !dt.IsComplex() {
			continue
		}
		r := rand.New(rand.NewPCG(3, uint64(dt)))
		src := newMemory(dt, most, 7)
		src.fillRandom(r)
		for _, factor := range []float64{1.0 / 3, -2, 0, 1e300, 1e-300} {
			want := newMemory(dt, most, 0)
			arithmetic(want, src, func(x float32) float32 { return x * float32(factor) },
				func(x float64) float64 { return x * factor })
			eachLevel(t, func(t *testing.T) {
				t.Run(fmt.Sprintf("%v/%v", dt, factor), func(t *testing.T) {
					for n := 0; n <= most; n++ {
						dst := newMemory(dt, n+2, n%64)
						Scale(dt, dst.ptr(), src.ptr(), n, factor)
						dst.intact(t, n)
						if err := same(dt, dst.bytes()[:n*dt.Size()], want.bytes()[:n*dt.Size()]); err != nil {
							t.Fatalf("n = %d: %v", n, err)
						}
					}
					both := newMemory(dt, most, 1)
					copy(both.bytes(), src.bytes())
					Scale(dt, both.ptr(), both.ptr(), most, factor)
					if err := same(dt, both.bytes(), want.bytes()); err != nil {
						t.Fatalf("in place: %v", err)
					}
				})
			})
		}
	}
}

func TestAverage(t *testing.T) {
	const n = 333
	for _, dt := range dtype.All() {
		if dt == dtype.Bool {
			continue
		}
		r := rand.New(rand.NewPCG(4, uint64(dt)))
		src := newMemory(dt, n, 7)
		src.fillRandom(r)
		for _, by := range []int{1, 2, 3, 8, 200, 70000} {
			want := newMemory(dt, n, 0)
			if dt.IsInteger() {
				for i := range n {
					truncated(want, src, i, by)
				}
			} else {
				arithmetic(want, src, func(x float32) float32 { return x / float32(by) },
					func(x float64) float64 { return x / float64(by) })
			}
			eachLevel(t, func(t *testing.T) {
				dst := newMemory(dt, n, 1)
				copy(dst.bytes(), src.bytes())
				Average(dt, dst.ptr(), n, by)
				dst.intact(t, n)
				if err := same(dt, dst.bytes(), want.bytes()); err != nil {
					t.Fatalf("%v by %d: %v", dt, by, err)
				}
			})
		}
	}
}

// truncated divides an integer with big numbers.
func truncated(dst, src *memory, i, by int) {
	size := src.dt.Size()
	raw := make([]byte, size) // big-endian
	for b := range raw {
		raw[size-1-b] = src.bytes()[i*size+b]
	}
	v := new(big.Int).SetBytes(raw)
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*size))
	if src.dt.IsSigned() && raw[0]&0x80 != 0 {
		v.Sub(v, modulus)
	}
	v.Quo(v, big.NewInt(int64(by)))
	v.Mod(v, modulus).FillBytes(raw)
	for b := range raw {
		dst.bytes()[i*size+b] = raw[size-1-b]
	}
}

func TestScalePanics(t *testing.T) {
	x := unsafe.Pointer(new(complex128))
	for name, call := range map[string]func(){
		"scale int32":    func() { Scale(dtype.Int32, x, x, 1, 2) },
		"scale invalid":  func() { Scale(dtype.Invalid, x, x, 1, 2) },
		"average bool":   func() { Average(dtype.Bool, x, 1, 2) },
		"average by 0":   func() { Average(dtype.Float32, x, 1, 0) },
		"average by -1":  func() { Average(dtype.Int32, x, 1, -1) },
		"average of 255": func() { Average(255, x, 1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}
