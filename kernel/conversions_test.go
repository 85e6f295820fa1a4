package kernel

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
)

// Conversions of floating-point numbers, also of those that the other type doesn't have, against PyTorch. A number out
// of an integer's range gives what the processor gives, which is the same for both of x86-64's.
func TestConversionsTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	inf := math.Inf(1)
	values := []float64{0, math.Copysign(0, -1), 0.5, -0.5, 1.9, -1.9, 127, 128, 255.9, 300, -300, 449, 465, 61440,
		65504, 65519, 65520, 70001, -70001, 0x1p31 - 128, 0x1p24 + 1, 1e-45, 1e-40, -6e-8, 3e-8}
	far := []float64{math.NaN(), inf, -inf, 1e30, -1e30, 3e9, -3e9, 5e9 + 7, 0x1p31, -0x1p31, 0x1p63, -0x1p63, 1e19,
		3.4e38, math.MaxFloat64}
	from := []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Complex64}
	to := []dtype.DType{dtype.Int32, dtype.Uint8, dtype.Int64, dtype.Int16, dtype.Int8, dtype.Bool, dtype.Float16,
		dtype.BFloat16, dtype.Float32, dtype.Float64, dtype.Complex64}
	var lines, names []string
	var results []*array
	for i, f := range from {
		for j, g := range to {
			if f == g || !sampled(len(from)*j+i, 30, 2) {
				continue
			}
			all := values
			if !g.IsInteger() || c.loader.Cores() > 0 && runtime.GOARCH == "amd64" {
				all = slices.Concat(values, far)
			}
			z := make([]complex128, 64*len(all)) // PyTorch has vectors
			for k := range z {
				z[k] = complex(all[k%len(all)], 0)
			}
			in, out := c.dense(t, f, len(z)), c.dense(t, g, len(z))
			in.set(z)
			var p Plan
			must(t, p.Copy(out.Operand, in.Operand))
			must(t, c.run(&p))
			expression := fmt.Sprintf("a.to(torch.%v)", g)
			if f.IsComplex() && !g.IsComplex() {
				expression = fmt.Sprintf("a.real.to(torch.%v)", g)
			}
			lines = append(lines, fmt.Sprintf("%v|%s|%s", f, in.file(t, dir, len(lines)), expression))
			names, results = append(names, fmt.Sprintf("%v to %v", f, g)), append(results, out)
		}
	}
	for k, want := range torch(t, lines) {
		out := results[k]
		if out.Type == dtype.Int64 {
			if x, y := integers(out.Type, out.data), integers(out.Type, want[0].data); !slices.Equal(x, y) {
				t.Errorf("%s: %v, and PyTorch has %v", names[k], x[:40], y[:40])
			}
			continue
		}
		x, y := out.elements(), elements(out.Type, want[0].data)
		for i := range x {
			if !alike(x[i], y[i], out.Type, 0, false) {
				t.Errorf("%s: element %d is %v, and PyTorch's %v", names[k], i, x[i], y[i])
			}
			if i > len(values)+len(far) {
				break
			}
		}
	}
}
