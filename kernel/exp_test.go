package kernel

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
)

// Exponentials of float32 are right to the last digit, from those that are 0 to those that are infinite. Those of NaN
// are NaN, whatever its bits.
func TestExponential(t *testing.T) {
	c := openCL(t)
	inputs := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
		-1000, 1000, 88.72283, 88.7229, -103.9, -104}
	for _, b := range []uint32{0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff} {
		inputs = append(inputs, math.Float32frombits(b))
	}
	for b := uint32(0); b < 0x42d40000; b += 65521 { // to 106
		x := math.Float32frombits(b)
		inputs = append(inputs, x, -x)
	}
	in, out := c.alloc(t, 4*len(inputs)), c.alloc(t, 4*len(inputs))
	for i, x := range inputs {
		binary.NativeEndian.PutUint32(in.host[4*i:], math.Float32bits(x))
	}
	operand := func(m *memory) Operand {
		return Operand{Ptr: m.ptr, Type: dtype.Float32, Sizes: []int{len(inputs)}, Strides: []int{1}}
	}
	var p Plan
	must(t, p.Elementwise("exp", dtype.Float32, []Operand{operand(out)}, []Operand{operand(in)}))
	must(t, c.run(&p))
	worst := 0.0
	for i, x := range inputs {
		got, want := float64(math.Float32frombits(binary.NativeEndian.Uint32(out.host[4*i:]))), math.Exp(float64(x))
		if rounded := float64(float32(want)); math.IsNaN(want) || math.IsInf(rounded, 0) {
			if !near(got, rounded, 0) {
				t.Errorf("exp(%v) is %v, not %v", x, got, rounded)
			}
			continue
		}
		_, e := math.Frexp(want)
		error := math.Abs(got-want) / math.Ldexp(1, max(e-24, -149))
		if !(error <= 2) {
			t.Errorf("exp(%v) is %v, not %v: %v of the last digit", x, got, want, error)
		}
		worst = max(worst, error)
	}
	t.Logf("at most %.2f of the last digit", worst)
}
