package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// torchReductions are PyTorch's expressions of a, the tensor x, over dimensions d.
var torchReductions = map[string]string{
	"sum": "x.sum(d, keepdim=True)", "mean": "x.mean(d, keepdim=True)",
	"prod": "x.prod() if d is None or x.dim() == 0 else x.prod(d[0], keepdim=True)",
	"all":  "torch.all(x) if d is None else torch.all(x, d, keepdim=True)",
	"any":  "torch.any(x) if d is None else torch.any(x, d, keepdim=True)", "count_nonzero": "torch.count_nonzero(x, d)",
	"nansum": "torch.nansum(x, d, keepdim=True)", "amax": "torch.amax(x, d or [], keepdim=True)",
	"amin": "torch.amin(x, d or [], keepdim=True)", "argmax": "torch.argmax(x, None if d is None else d[0])",
	"argmin":  "torch.argmin(x, None if d is None else d[0])",
	"max":     "(x.max(), x.argmax()) if d is None else x.max(d[0])",
	"min":     "(x.min(), x.argmin()) if d is None else x.min(d[0])",
	"aminmax": "tuple(x.aminmax()) if d is None else tuple(x.aminmax(dim=d[0]))",
	"var":     "torch.var(x, d, correction=1)", "std": "torch.std(x, d, correction=1)",
	"var_mean": "torch.var_mean(x, d, correction=1)", "std_mean": "torch.std_mean(x, d, correction=1)",
	"norm0": "torch.linalg.vector_norm(x, 0, d)", "norm1": "torch.linalg.vector_norm(x, 1, d)",
	"norm2": "torch.linalg.vector_norm(x, 2, d)", "norm": "torch.linalg.vector_norm(x, 3, d)",
	"norm_inf": "torch.linalg.vector_norm(x, inf, d)", "norm_neg_inf": "torch.linalg.vector_norm(x, -inf, d)",
	"logsumexp": "torch.logsumexp(x, list(range(x.dim())) if d is None else d)",
}

// shapes are tensors to reduce: their sizes and strides, and the dimensions; one for each form of the kernel, and those
// with no dimensions, or no elements, of the input or of the result.
var shapes = []struct {
	sizes, strides, dims []int
}{
	{[]int{5, 9, 4}, []int{36, 4, 1}, []int{1}},
	{[]int{}, []int{}, nil},
	{[]int{3, 0}, []int{1, 1}, []int{1}},
	{[]int{0, 3}, []int{3, 1}, []int{1}},
	{[]int{700}, []int{1}, nil},
	{[]int{4, 300, 3}, []int{1, 12, 4}, []int{1}},
	{[]int{3, 40, 50}, []int{2, 300, 6}, []int{2}},
	{[]int{2, 33000}, []int{33001, 1}, []int{1}},
	{[]int{40000}, []int{1}, nil},
	{[]int{40, 17000}, []int{3, 1}, []int{0}}, // elements that overlap,
	{[]int{400, 150}, []int{150, 1}, []int{0}},
	{[]int{520, 120}, []int{120, 1}, []int{0}},
	{[]int{2, 300, 2, 45}, []int{27000, 90, 45, 1}, []int{1}},
	{[]int{9, 70, 100}, []int{7000, 100, 1}, []int{0, 1}},
	{[]int{4, 3, 700}, []int{2100, 700, 1}, []int{0, 2}},
	{[]int{2, 1, 33000}, []int{33010, 1, 1}, []int{0, 2}},
	{[]int{150, 40}, []int{41, 1}, []int{1}},
	{[]int{6, 20}, []int{20, 1}, []int{1}}, // rows that groups of a GPU's threads have
	{[]int{33, 100}, []int{100, 1}, []int{1}},
}

// groupShapes is where those of groups begin.
var groupShapes = len(shapes) - 2

// Every reduction, on types of every kind and every shape, against PyTorch. The brief form has some.
func TestReduceTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	const n = 66_100
	type key struct {
		dt   dtype.DType
		only bool // finite numbers, and few: so that sums agree in any order
	}
	ins, files := map[key]*array{}, map[key]string{}
	for _, dt := range types {
		for _, finite := range []bool{false, true} {
			a := c.dense(t, dt, n)
			z := sample(dt, n, 5)
			for i := range z {
				if finite && dt.IsFloating() {
					z[i] = complex(float64(i*7919%97-48)/64, 0)
				}
			}
			a.set(z)
			k := key{dt, finite}
			ins[k], files[k] = a, a.file(t, dir, int(dt)+100*len(ins))
		}
	}
	var lines []string
	var runs []func(want []tensorResult)
	for k, r := range Reductions() {
		for _, dt := range types {
			for j, shape := range shapes {
				group := j >= groupShapes
				always := group && r.Name == "sum" && dt == dtype.Float32
				if left(dt, k+j) || !always && !sampled(7*k+5*int(dt)+11*j, 298, 12) {
					continue
				}
				compute := text.Opmath(dt)
				if !compute.IsFloating() && !compute.IsComplex() && (r.Name == "sum" || r.Name == "prod" || r.Name == "nansum") {
					compute = dtype.Int64
				}
				finite := slices.Contains([]string{"sum", "mean", "var", "std", "var_mean", "std_mean"}, r.Name) || j >= 7
				if len(shape.dims) > 1 && slices.Contains([]string{"argmax", "argmin", "max", "min", "aminmax"}, r.Name) {
					continue // PyTorch has them over one dimension or all
				}
				if !r.Defined(compute) || r.Name == "prod" && j >= 4 && dt != dtype.Float32 || r.Name == "prod" && j >= 7 {
					continue // products grow beyond all bounds
				}
				if r.Name == "mean" && j >= 4 && dt == dtype.Complex64 || strings.HasPrefix(r.Name, "norm") && dt.IsComplex() && j >= 7 {
					continue // PyTorch adds in another order
				}
				in := ins[key{dt, finite}].Operand
				in.Sizes, in.Strides = shape.sizes, shape.strides
				d := "None"
				if shape.dims != nil {
					d = strings.ReplaceAll(fmt.Sprint(shape.dims), " ", ",")
				}
				lines = append(lines, fmt.Sprintf("%v|%s|x = torch.as_strided(a, %s, %s); d = %s; %s", dt, files[key{dt, finite}],
					python(shape.sizes), python(shape.strides), d, torchReductions[r.Name]))
				runs = append(runs, func(want []tensorResult) {
					what := fmt.Sprintf("%s of %v over %v of %v", r.Name, dt, shape.dims, shape.sizes)
					if want == nil {
						return
					}
					var results []*array
					var outs []Operand
					for k := range r.Results() {
						sizes := slices.Clone(shape.sizes)
						for d := range sizes {
							if shape.dims == nil || slices.Contains(shape.dims, d) {
								sizes[d] = 1
							}
						}
						a := c.dense(t, want[k].dtype, sizes...)
						results, outs = append(results, a), append(outs, a.Operand)
					}
					p := Plan{Cores: c.loader.Cores(), Scratch: func(n int) (device.Ptr, error) {
						return c.dense(t, dtype.Uint8, n).Ptr, nil
					}}
					if group {
						p.Cores = 0
					}
					var numbers []*Number
					for range r.Numbers {
						number := Int(1)
						if r.Name == "norm" {
							number = Int(3)
						}
						numbers = append(numbers, number)
					}
					err := p.Reduce(r.Name, compute, outs, in, shape.dims, numbers...)
					if err == nil {
						err = c.run(&p)
					}
					if err != nil {
						t.Errorf("%s: %v", what, err)
						return
					}
					for k, a := range results {
						a.equal(t, what, want[k], 10*tolerance(dt))
					}
				})
			}
		}
	}
	run := 0
	for k, want := range torch(t, lines) {
		if want != nil {
			run++
		}
		runs[k](want)
	}
	t.Logf("%d reductions, of which PyTorch has %d", len(lines), run)
}

// python is a list of Python's.
func python(n []int) string { return strings.ReplaceAll(fmt.Sprint(n), " ", ",") }

// A reduction of nothing that has no result, and operands that don't fit, are refused.
func TestReduceRefused(t *testing.T) {
	var p Plan
	op := func(sizes ...int) Operand {
		return Operand{Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	for _, c := range []struct {
		op      string
		out, in Operand
		dims    []int
		want    string
	}{
		{"amax", op(1), op(0), nil, "no elements"},
		{"sum", op(2), op(3), []int{0}, "2 elements in the reduced dimension 0"},
		{"sum", op(3, 1), op(3), []int{0}, "2 dimensions"},
		{"sum", op(3, 1), op(4, 2), []int{1}, "sizes [3 1]"},
		{"sum", op(1), op(3), []int{1}, "over dimensions [1]"},
		{"sum", op(1), op(3), []int{0, 0}, "over dimensions [0 0]"},
		{"sums", op(1), op(3), nil, "no reduction"},
		{"var", op(1), op(3), nil, "0"},
	} {
		err := p.Reduce(c.op, dtype.Float32, []Operand{c.out}, c.in, c.dims)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s over %v of %v: %v", c.op, c.dims, c.in.Sizes, err)
		}
	}
	if len(p.Calls) > 0 {
		t.Error("a refused reduction left calls")
	}
}

// All of a GPU's multiprocessors have work, whatever is reduced, and neighbouring threads read neighbours.
func TestReduceParts(t *testing.T) {
	for _, x := range []struct {
		sizes  []int
		dim    int
		forms  []uint8
		blocks []int // of each run
	}{
		{[]int{1_000_000_000}, 0, []uint8{reduceParts, reduceJoin}, []int{1024, 1}},
		{[]int{64, 1_000_000}, 1, []uint8{reduceParts, reduceJoin}, []int{1024, 64}},
		{[]int{1_000_000, 512}, 0, []uint8{reduceColumns, reduceJoin}, []int{1024, 512}},
		{[]int{100, 3}, 0, []uint8{reduceColumns}, []int{1}},
		{[]int{100, 200_000}, 0, []uint8{reduceThread}, []int{782}},
		{[]int{1_000_000, 64}, 1, []uint8{reduceGroup}, []int{125_000}},
		{[]int{1_000_000, 16}, 1, []uint8{reduceGroup}, []int{31_250}},
		{[]int{1_000_000, 1024}, 1, []uint8{reduceGroup}, []int{125_000}},
		{[]int{1_000, 1024}, 1, []uint8{reduceBlock}, []int{1_000}},
		{[]int{4, 3}, 1, []uint8{reduceThread}, []int{1}},
		{[]int{2000, 3000}, 1, []uint8{reduceBlock}, []int{2000}},
	} {
		in := Operand{Ptr: 1 << 20, Type: dtype.Float32, Sizes: x.sizes, Strides: []int{1}}
		out := Operand{Ptr: 1 << 50, Type: dtype.Float32, Sizes: slices.Clone(x.sizes), Strides: []int{1}}
		if len(x.sizes) > 1 {
			in.Strides, out.Strides = []int{x.sizes[1], 1}, []int{x.sizes[1], 1}
		}
		out.Sizes[x.dim] = 1
		p := Plan{Scratch: func(int) (device.Ptr, error) { return 1 << 55, nil }}
		must(t, p.Reduce("sum", dtype.Float32, []Operand{out}, in, []int{x.dim}))
		var forms []uint8
		var blocks []int
		for _, c := range p.Calls {
			forms, blocks = append(forms, c.Spec.Form), append(blocks, c.Grid.X)
		}
		if !slices.Equal(blocks, x.blocks) || !slices.Equal(forms, x.forms) {
			t.Errorf("a sum over dimension %d of %v has runs of forms %d and %d blocks, not %d and %d", x.dim, x.sizes, forms,
				blocks, x.forms, x.blocks)
		}
	}
}
