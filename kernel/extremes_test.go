package kernel

import (
	"fmt"
	"maps"
	"math"
	"math/cmplx"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// extremes are the values of a type's parts at which operations are compared: zeros, the largest and smallest numbers,
// denormal ones, infinity and NaN, and some between. few leaves some out.
func extremes(dt dtype.DType, few bool) []float64 {
	if dt == dtype.Bool {
		return []float64{0, 1}
	}
	if dt.IsInteger() {
		bits := 8 * dt.Size()
		low, high := 0.0, math.Ldexp(1, bits)-1
		if dt.IsSigned() {
			low, high = -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)-1
		}
		if bits == 64 { // complex numbers carry the values
			high = math.Ldexp(1, 63) - 1024
		}
		list := []float64{0, 1, low, high, 2, 5}
		if dt.IsSigned() {
			list = append(list, -1, -7)
		}
		return list
	}
	var most, least, denormal float64
	switch text.Real(dt) {
	case dtype.Float16:
		most, least, denormal = 65504, 0x1p-14, 0x1p-24
	case dtype.BFloat16:
		most, least, denormal = 0x1.fep127, 0x1p-126, 0x1p-133
	case dtype.Float32:
		most, least, denormal = math.MaxFloat32, 0x1p-126, math.SmallestNonzeroFloat32
	default:
		most, least, denormal = math.MaxFloat64, 0x1p-1022, math.SmallestNonzeroFloat64
	}
	minus, inf := math.Copysign(0, -1), math.Inf(1)
	list := []float64{0, minus, 1, -1.5, inf, -inf, math.NaN(), most, least}
	if few {
		return list
	}
	return append(list, -1, -2, 2, -0.5, 90, -90, -most, -least, denormal, -denormal)
}

// divisions are operations that end PyTorch's process for the smallest integer by -1, and that it refuses by 0.
var divisions = []string{"div_trunc", "div_floor", "remainder", "fmod", "gcd", "lcm"}

// extremeInputs are inputs of an operation: each of them with each other one.
func extremeInputs(dt dtype.DType, o *ops.Op) [][]complex128 {
	parts := o.Ins
	if dt.IsComplex() {
		parts *= 2
	}
	values := extremes(dt, parts > 2)
	if parts > 4 {
		values = values[:min(6, len(values))]
	}
	n := 1
	for range parts {
		n *= len(values)
	}
	all := make([][]complex128, o.Ins)
	for k := range all {
		all[k] = make([]complex128, (n+63)/64*64) // of PyTorch's vectors
	}
	for i := range all[0] {
		rest := i % n
		for k := range all {
			digit := func() float64 { d := rest % len(values); rest /= len(values); return values[d] }
			re, im := digit(), 0.0
			if dt.IsComplex() {
				im = digit()
			}
			all[k][i] = complex(re, im)
			if !dt.IsInteger() || !slices.Contains(divisions, o.Name) {
				continue
			}
			if k == 1 && (all[k][i] == 0 || all[k][i] == -1) {
				all[k][i] = 3
			}
			if o.Name == "lcm" && dt.IsSigned() && real(all[k][i]) == values[2] { // a divisor may be -1
				all[k][i] = 6
			}
		}
	}
	return all
}

// flush makes zeros of denormal parts.
func flush(dt dtype.DType, z []complex128) []complex128 {
	least, r := extremes(dt, true)[8], slices.Clone(z)
	part := func(v float64) float64 {
		if math.Abs(v) < least {
			return math.Copysign(0, v)
		}
		return v
	}
	for i, v := range r {
		r[i] = complex(part(real(v)), part(imag(v)))
	}
	return r
}

// alike reports whether a result is PyTorch's: NaN, infinity and the sign of zero, and else nearly the number. The sign
// beside a NaN is open, as in C.
func alike(x, y complex128, dt dtype.DType, tolerance float64, open bool) bool {
	size := 0.0 // of what's finite
	for _, v := range [...]float64{real(y), imag(y)} {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			size = max(size, math.Abs(v))
		}
	}
	tiny := 0.0
	if dt.IsFloating() || dt.IsComplex() {
		tiny = 2 * extremes(dt, true)[8] // what's denormal may be 0
	}
	open = open || math.IsNaN(real(y)) || math.IsNaN(imag(y))
	part := func(x, y float64) bool {
		if open {
			x, y = math.Abs(x), math.Abs(y)
		}
		switch {
		case math.IsNaN(x) || math.IsNaN(y):
			return math.IsNaN(x) && math.IsNaN(y)
		case math.IsInf(x, 0) || math.IsInf(y, 0):
			return x == y
		case y == 0 && x == 0 && !open:
			return math.Signbit(x) == math.Signbit(y)
		}
		return math.Abs(x-y) <= tolerance*size+tiny
	}
	return part(real(x), real(y)) && part(imag(x), imag(y))
}

// unlike are operations that may have other results than PyTorch's at extreme values, by rows of docs/kernels.md: those
// that a field allows, or all if none does.
var unlike = map[string]struct {
	undefined bool // where PyTorch's result is NaN or infinite
	infinite  bool // where the result here is infinite
	zero      bool // where PyTorch's result is zero
	complex   bool // of complex numbers alone
}{
	"kl_div": {undefined: true}, "binary_cross_entropy_with_logits": {undefined: true},
	"softplus_backward": {undefined: true},
	"log1p":             {undefined: true, complex: true}, "sigmoid_backward": {complex: true}, "tanh_backward": {complex: true},
	"pow": {complex: true}, "acos": {complex: true}, "zeta": {}, "igamma": {}, "igammac": {}, "xlog1py": {},
	"chebyshev_polynomial_u": {}, "chebyshev_polynomial_w": {}, "shifted_chebyshev_polynomial_u": {},
	"shifted_chebyshev_polynomial_w": {}, "laguerre_polynomial_l": {}, "legendre_polynomial_p": {},
	"fmax": {zero: true}, "fmin": {zero: true}, "amax": {zero: true}, "amin": {zero: true}, "var": {infinite: true}, "std": {infinite: true},
	"var_mean": {infinite: true, zero: true}, "std_mean": {infinite: true, zero: true},
	"mean": {undefined: true, complex: true}, "norm2": {undefined: true, complex: true}, "cumprod": {complex: true},
	"logcumsumexp": {}, "modified_bessel_k0": {infinite: true}, "scaled_modified_bessel_k0": {infinite: true},
}

// Operations that aren't PyTorch's at extreme values are on the page.
func TestExtremesPage(t *testing.T) {
	page, err := os.ReadFile("../docs/kernels.md")
	must(t, err)
	_, table, ok := strings.Cut(string(page), "### Infinity, NaN and zeros\n")
	table, _, _ = strings.Cut(table, "\n#")
	if !ok {
		t.Fatal("docs/kernels.md has no such table")
	}
	var named []string
	for line := range strings.SplitSeq(table, "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for k, name := range strings.Split(cells[1], "`") {
				if k%2 == 1 {
					named = append(named, name)
				}
			}
		}
	}
	slices.Sort(named)
	if want := slices.Sorted(maps.Keys(unlike)); !slices.Equal(named, want) {
		t.Errorf("docs/kernels.md has %v, and the test %v", named, want)
	}
}

// Every operation of the table at the extreme values of its types, against PyTorch. Its loops over vectors and over
// single elements sometimes differ, and libraries may take a denormal number for a zero: each is right then.
func TestElementwiseExtremes(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	var lines []string
	var check []func(want ...[]tensorResult)
	for k, o := range ops.All() {
		for _, dt := range types {
			compute, result, err := o.Types(dt)
			if err != nil || o.Integers > 0 || !sampled(k+int(dt), 400, 12) || o.Name == "copy" && dt.IsComplex() ||
				strings.HasPrefix(o.Name, "binary_cross") && dt.Size() == 2 || strings.HasPrefix(o.Name, "from_f8") {
				continue
			}
			inputs := extremeInputs(dt, &o)
			write := func(all [][]complex128) (operands []*array, line string) {
				var names []string
				for i, z := range all {
					a := c.dense(t, dt, len(z))
					a.set(z)
					operands, names = append(operands, a), append(names, a.file(t, dir, 10*len(lines)+i))
				}
				return operands, fmt.Sprintf("%v|%s|", dt, strings.Join(names, " "))
			}
			operands, line := write(inputs)
			single := line
			for _, name := range []string{"a", "b", "c", "d", "e"}[:o.Ins] {
				single += fmt.Sprintf("%s = torch.stack((%[1]s, %[1]s), 1)[:, 0]; ", name)
			}
			lines = append(lines, line+torchExpression(&o), single+torchExpression(&o))
			if dt.IsInteger() || dt == dtype.Bool {
				lines = append(lines, line+torchExpression(&o))
			} else {
				flushed := make([][]complex128, len(inputs))
				for i := range inputs {
					flushed[i] = flush(dt, inputs[i])
				}
				_, line = write(flushed)
				lines = append(lines, line+torchExpression(&o))
			}
			check = append(check, func(want ...[]tensorResult) {
				if want[0] == nil {
					return
				}
				var outs, ins []Operand
				var results []*array
				n := len(inputs[0])
				for range o.Results() {
					a := c.dense(t, result, n)
					results, outs = append(results, a), append(outs, a.Operand)
				}
				for _, a := range operands {
					ins = append(ins, a.Operand)
				}
				var p Plan
				must(t, p.Elementwise(o.Name, compute, outs, ins, torchNumbersOf(&o, dt)...))
				must(t, c.run(&p))
				near := tolerance(dt)*max(1, looser[o.Name]) + tolerance(result)
				for k, a := range results {
					x, bad, first := a.elements(), 0, ""
					for i := range x {
						open, good := false, false
						for _, z := range inputs {
							open = open || math.IsNaN(real(z[i])) || math.IsNaN(imag(z[i]))
						}
						for _, w := range want {
							if w != nil {
								y := elements(w[k].dtype, w[k].data[i*result.Size():(i+1)*result.Size()])[0]
								good = good || alike(x[i], y, result, near, open) || exempt(o.Name, dt, x[i], y)
							}
						}
						if good {
							continue
						}
						if bad++; bad <= 5 {
							first += "\n   "
							for _, z := range inputs {
								first += fmt.Sprint(" ", z[i])
							}
							y := elements(want[0][k].dtype, want[0][k].data)[i]
							first += fmt.Sprint(": ", x[i], ", and PyTorch has ", y)
						}
					}
					if bad > 0 {
						t.Errorf("%s of %v: %d of %d elements differ:%s", o.Name, dt, bad, n, first)
					}
				}
			})
		}
	}
	all := torch(t, lines)
	for k := range check {
		check[k](all[3*k : 3*k+3]...)
	}
}

// exempt reports whether an operation's result x needn't be PyTorch's, y. In 16 bits PyTorch's parts of some overflow.
func exempt(op string, dt dtype.DType, x, y complex128) bool {
	finite := func(z complex128) bool { return !math.IsNaN(real(z) - real(z) + imag(z) - imag(z)) }
	row, listed := unlike[op]
	somewhere := row.undefined || row.infinite || row.zero
	return dt.IsFloating() && dt.Size() == 2 && !finite(y) || listed && (dt.IsComplex() || !row.complex) &&
		(!somewhere || row.undefined && !finite(y) || row.infinite && cmplx.IsInf(x) || row.zero && y == 0)
}

// Every reduction of two numbers at the extreme values, and every scan of them, against PyTorch.
func TestReduceExtremes(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	reduce := func(name, expression string, dt dtype.DType, k int, run func(p *Plan, outs []Operand, in Operand) error) {
		if !sampled(k, 60, 3) {
			return
		}
		pairs := extremeInputs(dt, &ops.Op{Ins: 2})
		n := len(pairs[0])
		z := make([]complex128, 0, 2*n)
		for i := range n {
			z = append(z, pairs[0][i], pairs[1][i])
		}
		in := c.dense(t, dt, n, 2)
		in.set(z)
		line := fmt.Sprintf("%v|%s|x = a.view(-1, 2); d = [1]; %s", dt, in.file(t, dir, k), expression)
		want := torch(t, []string{line})[0]
		if want == nil {
			return
		}
		var all []*array
		var operands []Operand
		for _, w := range want {
			a := c.dense(t, w.dtype, n, len(w.data)/w.dtype.Size()/n)
			all, operands = append(all, a), append(operands, a.Operand)
		}
		p := Plan{Cores: c.loader.Cores(), Scratch: func(n int) (device.Ptr, error) {
			return c.dense(t, dtype.Uint8, n).Ptr, nil
		}}
		must(t, run(&p, operands, in.Operand))
		must(t, c.run(&p))
		for k, a := range all {
			x, y, bad, first := a.elements(), elements(want[k].dtype, want[k].data), 0, ""
			each := len(x) / n
			for i := range x {
				pair := z[i/each*2 : i/each*2+2]
				open := false
				for _, v := range pair {
					open = open || math.IsNaN(real(v)) || math.IsNaN(imag(v))
				}
				if alike(x[i], y[i], a.Type, 10*tolerance(dt), open) || exempt(name, dt, x[i], y[i]) {
					continue
				}
				if bad++; bad <= 5 {
					first += fmt.Sprint("\n    ", pair, ": ", x[i], ", and PyTorch has ", y[i])
				}
			}
			if bad > 0 {
				t.Errorf("%s of %v, result %d: %d of %d elements differ:%s", name, dt, k, bad, len(x), first)
			}
		}
	}
	k := 0
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Complex64, dtype.Float64} {
		for _, r := range Reductions() {
			k++
			if !r.Defined(dt) {
				continue
			}
			reduce(r.Name, torchReductions[r.Name], dt, k, func(p *Plan, outs []Operand, in Operand) error {
				var numbers []*Number
				for range r.Numbers {
					number := Int(1)
					if r.Name == "norm" {
						number = Int(3)
					}
					numbers = append(numbers, number)
				}
				return p.Reduce(r.Name, dt, outs, in, []int{1}, numbers...)
			})
		}
		for _, name := range Scans() {
			k++
			if scans[name].Defined(dt) {
				reduce(name, "torch."+name+"(x, 1)", dt, k, func(p *Plan, outs []Operand, in Operand) error {
					return p.Scan(name, dt, outs, in, 1)
				})
			}
		}
		for _, name := range []string{"softmax", "log_softmax"} {
			k++
			if dt.IsFloating() {
				reduce(name, "torch."+name+"(x, 1)", dt, k, func(p *Plan, outs []Operand, in Operand) error {
					return p.Softmax(name, outs[0], in, 1)
				})
			}
		}
	}
}
