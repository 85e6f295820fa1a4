package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// A GPU's threads have several elements at a time where the addresses are aligned, and each element is computed once,
// whatever their number, types and addresses are, in place, too.
func TestElementPacks(t *testing.T) {
	c := openCL(t)
	gpu := &cl{dev: c.dev, stream: c.stream}
	var err error
	gpu.loader, err = loader.New(c.dev, nil)
	must(t, err)
	gpu.loader.As(loader.Processor{})
	for k, x := range []struct {
		out, in dtype.DType
		pack    int32
		inPlace bool
	}{{dtype.Float32, dtype.Float32, 4, false}, {dtype.Float16, dtype.Float16, 8, false},
		{dtype.Int8, dtype.Int8, 16, false}, {dtype.Float64, dtype.Float64, 2, false},
		{dtype.Float32, dtype.Int8, 4, false}, {dtype.Int8, dtype.Float32, 4, false}, {dtype.Bool, dtype.Bool, 16, false},
		{dtype.Float32, dtype.Bool, 4, false}, {dtype.Complex64, dtype.Complex64, 0, false},
		{dtype.Complex64, dtype.Bool, 0, false}, {dtype.Float32, dtype.Float32, 4, true},
		{dtype.Complex64, dtype.Complex64, 0, true}} {
		if testutil.Short() && k%2 != 0 { // each kernel is compiled here
			continue
		}
		for _, n := range []int{1, 15, 16, 1000, 4099} {
			for _, shift := range []int{0, 1} {
				what := fmt.Sprintf("%v of %v, %d elements from %d, in place %t", x.out, x.in, n, shift, x.inPlace)
				a, b := gpu.dense(t, x.in, n+shift), gpu.dense(t, x.out, n+shift)
				if x.inPlace {
					b = a
				}
				compute, op, scalars, most := dtype.Float32, "add", []*Number{Float(1)}, 50
				if x.out == dtype.Bool {
					op, scalars = "logical_xor", nil // with true
				}
				if x.out.IsComplex() {
					compute = x.out
				}
				if x.in == dtype.Bool {
					most = 2
				}
				z := make([]complex128, n+shift)
				for i := range z {
					z[i] = complex(float64(i%most), 0)
					if x.in == dtype.Complex64 {
						z[i] += 1i
					}
				}
				a.set(z)
				in, out := a.Operand, b.Operand
				in.Sizes, out.Sizes = []int{n}, []int{n}
				in.Ptr, out.Ptr = in.Ptr.Add(shift*x.in.Size()), out.Ptr.Add(shift*x.out.Size())
				var p Plan
				must(t, p.Elementwise(op, compute, []Operand{out}, []Operand{in, {Type: x.out, Value: Float(3)}}, scalars...))
				want := x.pack
				if shift > 0 {
					want = 0
				}
				if got := p.Calls[0].Spec.Extra[3]; got != want {
					t.Errorf("%s: %d at a time, want %d", what, got, want)
				}
				must(t, gpu.run(&p))
				b.intact(t, what)
				for i, got := range b.elements()[shift:] {
					want := z[i+shift] + 3
					if x.out == dtype.Bool {
						want = 1 - z[i+shift]
					}
					if got != want {
						t.Fatalf("%s: element %d is %v, want %v", what, i, got, want)
					}
				}
			}
		}
	}
}

// NVRTC makes one instruction of a load of 16 bytes.
func TestElementPackInstructions(t *testing.T) {
	c := openCompiler(t, text.CUDA)
	for dt, pack := range map[dtype.DType]int32{dtype.Float32: 4, dtype.BFloat16: 8, dtype.Int8: 16} {
		s := text.Spec{Family: ElementwiseFamily, Op: "neg", Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: 1}
		s.Types[0], s.Types[1], s.Extra[3] = dt, dt, pack
		src, err := s.Source()
		must(t, err)
		ptx, err := c.compile(src, "compute_80")
		must(t, err)
		if text := string(ptx); !strings.Contains(text, "ld.global.v4") || !strings.Contains(text, "st.global.v4") {
			t.Errorf("%v isn't loaded by 16 bytes:\n%s", dt, text)
		}
	}
}
