package kern

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// eachLevel runs a test on every instruction set that this processor has.
func eachLevel(t *testing.T, test func(t *testing.T)) {
	for _, name := range Levels() {
		t.Run(name, func(t *testing.T) {
			defer SetLevel(name)()
			test(t)
		})
	}
}

const guard = 0xa5

// memory is n elements between two zones that no function may write.
type memory struct {
	dt  dtype.DType
	n   int
	all []byte
	at  int // where the elements start
}

// newMemory puts n elements shift elements after an address aligned to 64.
func newMemory(dt dtype.DType, n, shift int) *memory {
	const zone = 128
	m := &memory{dt: dt, n: n}
	m.all = make([]byte, zone+64+shift*dt.Size()+n*dt.Size()+zone)
	m.at = zone + int(-uintptr(unsafe.Pointer(&m.all[zone]))&63) + shift*dt.Size()
	for i := range m.all {
		m.all[i] = guard
	}
	return m
}

func (m *memory) ptr() unsafe.Pointer { return unsafe.Pointer(&m.all[m.at]) }
func (m *memory) bytes() []byte       { return m.all[m.at : m.at+m.n*m.dt.Size()] }

// intact checks the zones and that no element from n on was written, if the elements held the guard before.
func (m *memory) intact(t *testing.T, n int) {
	t.Helper()
	end := m.at + n*m.dt.Size()
	for i, b := range m.all[:m.at] {
		if b != guard {
			t.Fatalf("byte %d before the memory was overwritten", i-m.at)
		}
	}
	for i := end; i < len(m.all); i++ {
		if m.all[i] != guard {
			t.Fatalf("byte %d after the memory was overwritten", i-end)
		}
	}
}

// fillRandom writes elements that provoke: every bit pattern of the narrow types is likely, and a quarter of the wide
// floats are zeros of either sign, infinities, NaN, subnormal, or so large that sums overflow.
func (m *memory) fillRandom(r *rand.Rand) {
	b := m.bytes()
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	p := m.ptr()
	switch m.dt {
	case dtype.Bool:
		for i := range b {
			b[i] &= 1
		}
	case dtype.Float32, dtype.Complex64:
		s, bits := unsafe.Slice((*float32)(p), len(b)/4), unsafe.Slice((*uint32)(p), len(b)/4)
		for i := range s {
			if r.IntN(16) == 0 {
				bits[i] = bits[i]>>31<<31 | 0x7f800001 | bits[i]&0x7fffff // NaN of any sign and payload
				continue
			}
			s[i] = float32(provoking(r, 1e38))
		}
	case dtype.Float64, dtype.Complex128:
		s, bits := unsafe.Slice((*float64)(p), len(b)/8), unsafe.Slice((*uint64)(p), len(b)/8)
		for i := range s {
			if r.IntN(16) == 0 {
				bits[i] = bits[i]>>63<<63 | 0x7ff0000000000001 | bits[i]&0xfffffffffffff
				continue
			}
			s[i] = provoking(r, 1e308)
		}
	case dtype.Float16, dtype.BFloat16:
		s := unsafe.Slice((*uint16)(p), len(b)/2)
		for i := range s {
			if r.IntN(2) == 0 { // random bits are mostly far apart; sums round where exponents are near
				if m.dt == dtype.Float16 {
					s[i] = uint16(dtype.F16FromFloat64(provoking(r, 6e4)))
				} else {
					s[i] = uint16(dtype.BF16FromFloat64(provoking(r, 3e38)))
				}
			}
		}
	}
}

func provoking(r *rand.Rand, large float64) float64 {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -5e-324, large, -large, 1,
		-1}
	if r.IntN(4) == 0 {
		return special[r.IntN(len(special))]
	}
	return math.Ldexp(r.Float64()-0.5, r.IntN(6))
}

// exactly compares elements bit by bit.
func exactly(dt dtype.DType, got, want []byte) error {
	size := dt.Size()
	for i := 0; i < len(want); i += size {
		if g, w := got[i:i+size], want[i:i+size]; string(g) != string(w) {
			return fmt.Errorf("element %d is %x (%s), want %x (%s)", i/size, g, show(dt, g), w, show(dt, w))
		}
	}
	return nil
}

// same compares elements bit by bit, except that any NaN equals any other.
func same(dt dtype.DType, got, want []byte) error {
	if string(got) == string(want) {
		return nil
	}
	dt, _ = parts(dt, 0)
	size := dt.Size()
	for i := 0; i < len(want); i += size {
		g, w := got[i:i+size], want[i:i+size]
		if string(g) != string(w) && !(isNaN(dt, g) && isNaN(dt, w)) {
			return fmt.Errorf("element %d is %x (%s), want %x (%s)", i/size, g, show(dt, g), w, show(dt, w))
		}
	}
	return nil
}

func isNaN(dt dtype.DType, b []byte) bool {
	p := unsafe.Pointer(&b[0])
	switch dt {
	case dtype.Float16:
		return dtype.F16(load16(b)).IsNaN()
	case dtype.BFloat16:
		return dtype.BF16(load16(b)).IsNaN()
	case dtype.Float8E4M3FN:
		return dtype.F8E4M3FN(b[0]).IsNaN()
	case dtype.Float8E5M2:
		return dtype.F8E5M2(b[0]).IsNaN()
	case dtype.Float32:
		return *(*float32)(p) != *(*float32)(p)
	case dtype.Float64:
		return *(*float64)(p) != *(*float64)(p)
	}
	return false
}

func load16(b []byte) uint16 { return *(*uint16)(unsafe.Pointer(&b[0])) }

func show(dt dtype.DType, b []byte) string {
	p := unsafe.Pointer(&b[0])
	switch dt {
	case dtype.Float16:
		return fmt.Sprint(dtype.F16(load16(b)).Float32())
	case dtype.BFloat16:
		return fmt.Sprint(dtype.BF16(load16(b)).Float32())
	case dtype.Float32:
		return fmt.Sprint(*(*float32)(p))
	case dtype.Float64:
		return fmt.Sprint(*(*float64)(p))
	}
	return dt.String()
}

// reference reduces one element after the other, by definitions that share no code with the package.
func reference(op Op, dst *memory, srcs []*memory) {
	if len(srcs) == 1 {
		copy(dst.bytes(), srcs[0].bytes())
		return
	}
	defer dst.oneNaN()
	switch dst.dt {
	case dtype.Bool, dtype.Uint8:
		refer(dst, srcs, integerOp[uint8](op, dst.dt == dtype.Bool))
	case dtype.Uint16:
		refer(dst, srcs, integerOp[uint16](op, false))
	case dtype.Uint32:
		refer(dst, srcs, integerOp[uint32](op, false))
	case dtype.Uint64:
		refer(dst, srcs, integerOp[uint64](op, false))
	case dtype.Int8:
		refer(dst, srcs, integerOp[int8](op, false))
	case dtype.Int16:
		refer(dst, srcs, integerOp[int16](op, false))
	case dtype.Int32:
		refer(dst, srcs, integerOp[int32](op, false))
	case dtype.Int64:
		refer(dst, srcs, integerOp[int64](op, false))
	case dtype.Float32:
		refer(dst, srcs, floatOp[float32](op))
	case dtype.Float64:
		refer(dst, srcs, floatOp[float64](op))
	case dtype.Float16:
		referNarrow(op, dst, srcs, dtype.F16.Float32, dtype.F16FromFloat32)
	case dtype.BFloat16:
		referNarrow(op, dst, srcs, dtype.BF16.Float32, dtype.BF16FromFloat32)
	case dtype.Float8E4M3FN:
		referNarrow(op, dst, srcs, dtype.F8E4M3FN.Float32, dtype.F8E4M3FNFromFloat32)
	case dtype.Float8E5M2:
		referNarrow(op, dst, srcs, dtype.F8E5M2.Float32, dtype.F8E5M2FromFloat32)
	case dtype.Complex64:
		refer(dst, srcs, func(a, b complex64) complex64 {
			if op == Sum {
				return a + b
			}
			ac, bd, ad, bc := real(a)*real(b), imag(a)*imag(b), real(a)*imag(b), imag(a)*real(b)
			return complex(float32(ac)-float32(bd), float32(ad)+float32(bc))
		})
	case dtype.Complex128:
		refer(dst, srcs, func(a, b complex128) complex128 {
			if op == Sum {
				return a + b
			}
			ac, bd, ad, bc := real(a)*real(b), imag(a)*imag(b), real(a)*imag(b), imag(a)*real(b)
			return complex(float64(ac)-float64(bd), float64(ad)+float64(bc))
		})
	}
}

// oneNaN replaces every NaN by the one that reductions give.
func (m *memory) oneNaN() {
	var nan []byte
	switch m.dt {
	case dtype.Float16:
		nan = []byte{0, 0x7e}
	case dtype.BFloat16:
		nan = []byte{0xc0, 0x7f}
	case dtype.Float8E4M3FN, dtype.Float8E5M2:
		nan = []byte{0x7f}
	case dtype.Float32, dtype.Complex64:
		nan = []byte{0, 0, 0xc0, 0x7f}
	case dtype.Float64, dtype.Complex128:
		nan = []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x7f}
	default:
		return
	}
	part, _ := parts(m.dt, 0)
	b := m.bytes()
	for i := 0; i < len(b); i += len(nan) {
		if isNaN(part, b[i:]) {
			copy(b[i:], nan)
		}
	}
}

func refer[T any](dst *memory, srcs []*memory, f func(a, b T) T) {
	d := unsafe.Slice((*T)(dst.ptr()), dst.n)
	for i := range d {
		acc := unsafe.Slice((*T)(srcs[0].ptr()), dst.n)[i]
		for _, s := range srcs[1:] {
			acc = f(acc, unsafe.Slice((*T)(s.ptr()), dst.n)[i])
		}
		d[i] = acc
	}
}

func referNarrow[E any](op Op, dst *memory, srcs []*memory, from func(E) float32, to func(float32) E) {
	f := floatOp[float32](op)
	d := unsafe.Slice((*E)(dst.ptr()), dst.n)
	for i := range d {
		acc := from(unsafe.Slice((*E)(srcs[0].ptr()), dst.n)[i])
		for _, s := range srcs[1:] {
			acc = f(acc, from(unsafe.Slice((*E)(s.ptr()), dst.n)[i]))
		}
		d[i] = to(acc)
	}
}

func integerOp[T integer](op Op, boolean bool) func(a, b T) T {
	if boolean {
		switch op {
		case Sum, Max:
			op = BOr
		case Product, Min:
			op = BAnd
		}
	}
	switch op {
	case Sum:
		return func(a, b T) T { return a + b }
	case Product:
		return func(a, b T) T { return a * b }
	case Min:
		return func(a, b T) T {
			if b < a {
				return b
			}
			return a
		}
	case Max:
		return func(a, b T) T {
			if b > a {
				return b
			}
			return a
		}
	case BAnd:
		return func(a, b T) T { return a & b }
	case BOr:
		return func(a, b T) T { return a | b }
	}
	return func(a, b T) T { return a ^ b }
}

func floatOp[T float32 | float64](op Op) func(a, b T) T {
	switch op {
	case Sum:
		return func(a, b T) T { return a + b }
	case Product:
		return func(a, b T) T { return a * b }
	}
	sign := T(1)
	if op == Max {
		sign = -1
	}
	return func(a, b T) T {
		switch {
		case a != a:
			return a
		case b != b:
			return b
		case a == 0 && b == 0: // -0 < +0
			if math.Signbit(float64(a)) == (op == Min) {
				return a
			}
			return b
		case sign*b < sign*a:
			return b
		}
		return a
	}
}
