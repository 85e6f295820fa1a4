package kern

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// convertOne is the definition of Convert for one element, by way of exact arithmetic.
func convertOne(to dtype.DType, dst unsafe.Pointer, from dtype.DType, src unsafe.Pointer) {
	var whole *big.Int // the value, if it is an integer type
	var float float64  // else the value or its real part
	var imag float64
	switch from {
	case dtype.Bool, dtype.Uint8:
		whole = big.NewInt(int64(*(*uint8)(src)))
	case dtype.Uint16:
		whole = big.NewInt(int64(*(*uint16)(src)))
	case dtype.Uint32:
		whole = big.NewInt(int64(*(*uint32)(src)))
	case dtype.Uint64:
		whole = new(big.Int).SetUint64(*(*uint64)(src))
	case dtype.Int8:
		whole = big.NewInt(int64(*(*int8)(src)))
	case dtype.Int16:
		whole = big.NewInt(int64(*(*int16)(src)))
	case dtype.Int32:
		whole = big.NewInt(int64(*(*int32)(src)))
	case dtype.Int64:
		whole = big.NewInt(*(*int64)(src))
	case dtype.Float16:
		float = (*(*dtype.F16)(src)).Float64()
	case dtype.BFloat16:
		float = (*(*dtype.BF16)(src)).Float64()
	case dtype.Float8E4M3FN:
		float = (*(*dtype.F8E4M3FN)(src)).Float64()
	case dtype.Float8E5M2:
		float = (*(*dtype.F8E5M2)(src)).Float64()
	case dtype.Float32:
		float = float64(*(*float32)(src))
	case dtype.Float64:
		float = *(*float64)(src)
	case dtype.Complex64:
		float, imag = float64(*(*float32)(src)), float64(*(*float32)(unsafe.Add(src, 4)))
	case dtype.Complex128:
		float, imag = *(*float64)(src), *(*float64)(unsafe.Add(src, 8))
	}
	if to == dtype.Bool {
		*(*bool)(dst) = float != 0 || imag != 0 || whole != nil && whole.Sign() != 0
		return
	}
	if to.IsInteger() {
		if whole == nil {
			whole = saturate(to, float)
		}
		low := new(big.Int).And(whole, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
		Copy(dst, unsafe.Pointer(&low), to.Size()) // little-endian
		return
	}
	if whole != nil { // to 53 digits, rounded to odd, which the narrow types can't tell from the exact value
		f := new(big.Float).SetPrec(53).SetMode(big.ToZero).SetInt(whole)
		float, _ = f.Float64()
		if f.Acc() != big.Exact {
			float = math.Float64frombits(math.Float64bits(float) | 1)
		}
	}
	switch to {
	case dtype.Float16:
		*(*dtype.F16)(dst) = dtype.F16FromFloat64(float)
	case dtype.BFloat16:
		*(*dtype.BF16)(dst) = dtype.BF16FromFloat64(float)
	case dtype.Float8E4M3FN:
		*(*dtype.F8E4M3FN)(dst) = dtype.F8E4M3FNFromFloat64(float)
	case dtype.Float8E5M2:
		*(*dtype.F8E5M2)(dst) = dtype.F8E5M2FromFloat64(float)
	case dtype.Float32:
		*(*float32)(dst) = float32(float)
	case dtype.Complex64:
		*(*complex64)(dst) = complex(float32(float), float32(imag))
	case dtype.Float64, dtype.Complex128:
		if whole != nil {
			float, _ = new(big.Float).SetInt(whole).Float64()
		}
		*(*float64)(dst) = float
		if to == dtype.Complex128 {
			*(*float64)(unsafe.Add(dst, 8)) = imag
		}
	}
}

func saturate(to dtype.DType, f float64) *big.Int {
	if f != f {
		return new(big.Int)
	}
	bits := uint(to.Size() * 8)
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), bits)
	if to.IsSigned() {
		high.Lsh(big.NewInt(1), bits-1)
		low.Neg(high)
	}
	high.Sub(high, big.NewInt(1))
	switch {
	case math.IsInf(f, 1):
		return high
	case math.IsInf(f, -1):
		return low
	}
	v, _ := big.NewFloat(f).Int(nil)
	if v.Cmp(low) < 0 {
		return low
	}
	if v.Cmp(high) > 0 {
		return high
	}
	return v
}

// Every pair of types, sizes over several vectors and blocks, any alignment, every level.
func TestConvert(t *testing.T) {
	const most = 300
	for _, from := range dtype.All() {
		for _, to := range dtype.All() {
			t.Run(from.String()+"To"+to.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(from), uint64(to)))
				src := newMemory(from, most, 5)
				src.fillRandom(r)
				if from == dtype.Float64 || from == dtype.Complex128 { // the ends of the integer types
					s := unsafe.Slice((*float64)(src.ptr()), most)
					for i, exp := range []int{7, 8, 15, 16, 31, 32, 63, 64} {
						end := math.Ldexp(1, exp)
						copy(s[8*i:], []float64{end, end - 1, end + 1, -end, -end - 1, -end + 1, math.Nextafter(end, 0), -1})
					}
				}
				if from == dtype.Int64 || from == dtype.Uint64 { // all magnitudes, and some just beside a tie
					s := unsafe.Slice((*int64)(src.ptr()), most)
					for i := range s {
						s[i] >>= r.IntN(64)
						if i%4 == 0 { // half a unit of bfloat16, float32 and float64
							s[i] = 1<<62 + 1<<[]int{54, 38, 9}[r.IntN(3)] + int64(r.IntN(3)) - 1
						}
					}
				}
				want := newMemory(to, most, 0)
				for i := range most {
					convertOne(to, unsafe.Add(want.ptr(), i*to.Size()), from, unsafe.Add(src.ptr(), i*from.Size()))
				}
				eachLevel(t, func(t *testing.T) {
					for n := 0; n <= most; n++ {
						if n > 70 && n%23 != 0 {
							continue
						}
						dst := newMemory(to, n+3, r.IntN(64))
						Convert(to, dst.ptr(), from, src.ptr(), n)
						dst.intact(t, n)
						if err := same(to, dst.bytes()[:n*to.Size()], want.bytes()[:n*to.Size()]); err != nil {
							t.Fatalf("n = %d: %v", n, err)
						}
					}
					if from.Size() == to.Size() { // in place
						both := newMemory(to, most, 3)
						copy(both.bytes(), src.bytes())
						Convert(to, both.ptr(), from, both.ptr(), most)
						both.intact(t, most)
						if err := same(to, both.bytes(), want.bytes()); err != nil {
							t.Fatalf("in place: %v", err)
						}
					}
				})
			})
		}
	}
}

// Every 16-bit pattern widened, and every 16-bit pattern's neighbourhood in float32 narrowed, on every level.
func TestConvertExhaustive(t *testing.T) {
	for _, narrow := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		all := newMemory(narrow, 1<<16, 0)
		for i := range 1 << 16 {
			*(*uint16)(unsafe.Add(all.ptr(), 2*i)) = uint16(i)
		}
		near := newMemory(dtype.Float32, 3<<16, 0)
		for i := range near.n {
			var f float32
			convertOne(dtype.Float32, unsafe.Pointer(&f), narrow, unsafe.Add(all.ptr(), i/3*2))
			half := uint32(1) << 15 // half a unit of bfloat16
			if narrow == dtype.Float16 {
				half = 1 << 12
			}
			bits := math.Float32bits(f) + half + uint32(i%3) - 1 // before, on and after the midpoint to the next
			*(*uint32)(unsafe.Add(near.ptr(), 4*i)) = bits
		}
		for _, c := range []struct {
			to  dtype.DType
			src *memory
		}{{dtype.Float32, all}, {narrow, near}} {
			want := newMemory(c.to, c.src.n, 0)
			for i := range c.src.n {
				convertOne(c.to, unsafe.Add(want.ptr(), i*c.to.Size()), c.src.dt, unsafe.Add(c.src.ptr(), i*c.src.dt.Size()))
			}
			eachLevel(t, func(t *testing.T) {
				got := newMemory(c.to, c.src.n, 1)
				Convert(c.to, got.ptr(), c.src.dt, c.src.ptr(), c.src.n)
				if err := same(c.to, got.bytes(), want.bytes()); err != nil {
					t.Errorf("%v to %v: %v", c.src.dt, c.to, err)
				}
			})
		}
	}
}

func TestConvertPanics(t *testing.T) {
	x := unsafe.Pointer(new(uint64))
	for _, pair := range [][2]dtype.DType{{dtype.Invalid, dtype.Int8}, {dtype.Int8, dtype.Count}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for %v", pair)
				}
			}()
			Convert(pair[0], x, pair[1], x, 1)
		}()
	}
}

// FuzzConvert converts arbitrary bytes on every level.
func FuzzConvert(f *testing.F) {
	f.Add(uint8(dtype.Float64), uint8(dtype.Float16), []byte("\x01\x00\x00\x00\x00\x02\xf0\x3f12345678"))
	f.Add(uint8(dtype.Float32), uint8(dtype.BFloat16), []byte("\x00\x80\x80\x3f\xff\xff\x7f\x7f\x01\x00\x80\x7f"))
	f.Fuzz(func(t *testing.T, fromNumber, toNumber uint8, raw []byte) {
		from, to := dtype.DType(fromNumber), dtype.DType(toNumber)
		if !from.Valid() || !to.Valid() {
			return
		}
		n := min(len(raw)/from.Size(), 5000)
		src, want := newMemory(from, n, 1), newMemory(to, n, 0)
		copy(src.bytes(), raw)
		for i := range n {
			if from == dtype.Bool {
				src.bytes()[i] &= 1
			}
			convertOne(to, unsafe.Add(want.ptr(), i*to.Size()), from, unsafe.Add(src.ptr(), i*from.Size()))
		}
		for _, name := range Levels() {
			restore := SetLevel(name)
			got := newMemory(to, n, 3)
			Convert(to, got.ptr(), from, src.ptr(), n)
			restore()
			got.intact(t, n)
			if err := same(to, got.bytes(), want.bytes()); err != nil {
				t.Fatalf("%s: %v to %v: %v", name, from, to, err)
			}
		}
	})
}
