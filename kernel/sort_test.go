package kernel

import (
	"fmt"
	"maps"
	"math/cmplx"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// plan is one with scratch memory, until the end of the test.
func (c *cl) plan(t testing.TB) *Plan {
	return &Plan{Scratch: func(n int) (device.Ptr, error) { return c.alloc(t, n).ptr, nil }}
}

// strided is an array's memory with other sizes and strides.
func (a *array) strided(sizes, strides []int) Operand {
	o := a.Operand
	o.Sizes, o.Strides = sizes, strides
	return o
}

// comparisons are runs of a plan and lines of PyTorch, whose results are compared at the end.
type comparisons struct {
	c       *cl
	lines   []string
	names   []string
	results [][]*array
}

// add runs what adds to a plan, with results of these types and sizes, and has a line of PyTorch's for it.
func (x *comparisons) add(t *testing.T, name, line string, outs []Operand, run func(p *Plan, outs []Operand) error) {
	t.Helper()
	var results []*array
	for k, o := range outs {
		a := x.c.dense(t, o.Type, o.Sizes...)
		results, outs[k] = append(results, a), a.Operand
	}
	p := x.c.plan(t)
	err := run(p, outs)
	if err == nil {
		err = x.c.run(p)
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	x.lines, x.names, x.results = append(x.lines, line), append(x.names, name), append(x.results, results)
}

// compare compares all results with PyTorch's, which must have them.
func (x *comparisons) compare(t *testing.T, factor float64) {
	t.Helper()
	for k, want := range torch(t, x.lines) {
		if len(want) != len(x.results[k]) {
			t.Errorf("%s: PyTorch has %d results of %d: %s", x.names[k], len(want), len(x.results[k]), x.lines[k])
			continue
		}
		for i, r := range x.results[k] {
			r.equal(t, fmt.Sprintf("%s, result %d", x.names[k], i), want[i], factor*tolerance(r.Type))
		}
	}
}

func of(t dtype.DType, sizes ...int) Operand { return Operand{Type: t, Sizes: slices.Clone(sizes)} }

// sortShapes are tensors to sort along their dimension dims[0], which have short and long lines in any place.
var sortShapes = []struct {
	sizes, strides, dims []int
}{
	{[]int{5, 9, 4}, []int{36, 4, 1}, []int{1}},
	{[]int{}, []int{}, []int{0}},
	{[]int{3, 0}, []int{1, 1}, []int{1}},
	{[]int{0, 3}, []int{3, 1}, []int{1}},
	{[]int{4, 1}, []int{1, 1}, []int{1}},
	{[]int{2, 700, 3}, []int{1, 12, 4}, []int{1}},
	{[]int{1024}, []int{2}, []int{0}},
	{[]int{3, 1025}, []int{1, 3}, []int{1}},
	{[]int{2, 5000}, []int{0, 1}, []int{1}},
	{[]int{7000, 2}, []int{1, 3}, []int{0}},
	{[]int{2, 3, 8500}, []int{250, 0, 1}, []int{2}},
	{[]int{40_000}, []int{0}, []int{0}},
}

// sortTypes are those that have an order.
var sortTypes = slices.DeleteFunc(slices.Clone(types), func(t dtype.DType) bool { return t.IsComplex() })

// Sorts of every type along lines of every length, against PyTorch.
func TestSortTorch(t *testing.T) {
	x, dir, r := &comparisons{c: openCL(t)}, t.TempDir(), 0
	for k, dt := range sortTypes {
		a := x.c.dense(t, dt, 9000)
		z := sample(dt, 9000, 9)
		if dt.IsInteger() && dt.Size() > 1 {
			for i := range z { // beyond the range that samples have
				z[i] *= complex(float64(i%7)*100, 0)
			}
		}
		a.set(z)
		numbers := x.c.dense(t, dt, 9000) // without NaN, which PyTorch's mode doesn't sort
		for i := range z {
			if cmplx.IsNaN(z[i]) {
				z[i] = 4
			}
		}
		numbers.set(z)
		file := a.file(t, dir, 2*k) + " " + numbers.file(t, dir, 2*k+1)
		for j, s := range sortShapes {
			if r++; !sampled(5*k+7*j, 74, 2) {
				continue
			}
			dim, n := s.dims[0], 1
			if len(s.sizes) > 0 {
				n = s.sizes[dim]
			}
			in := a.strided(s.sizes, s.strides)
			part := func(n int) []int {
				sizes := slices.Clone(s.sizes)
				if len(sizes) > 0 {
					sizes[dim] = n
				}
				return sizes
			}
			line := func(expression string, args ...any) string {
				return fmt.Sprintf("%v|%s|x = torch.as_strided(a, %s, %s); d = %d; %s", dt, file, python(s.sizes), python(s.strides),
					dim, fmt.Sprintf(expression, args...))
			}
			name := func(op string) string { return fmt.Sprintf("%s of %v along %d of %v", op, dt, dim, s.sizes) }
			for _, down := range []bool{false, true} {
				x.add(t, name(fmt.Sprintf("sort, descending %v", down)),
					line("torch.sort(x, dim=d, descending=%v, stable=True)", map[bool]string{true: "True", false: "False"}[down]),
					[]Operand{of(dt, s.sizes...), of(dtype.Int64, s.sizes...)}, func(p *Plan, outs []Operand) error {
						return p.Sort(outs[0], outs[1], in, dim, down)
					})
			}
			few := min(n, 3) // small enough for pieces of which a block finds the first ones
			x.add(t, name("topk"), line("torch.sort(x, dim=d, descending=True, stable=True)[0].narrow(d, 0, %d) if x.dim() else x",
				few), []Operand{of(dt, part(few)...)}, func(p *Plan, outs []Operand) error {
				return p.Sort(outs[0], Operand{}, in, dim, true)
			})
			many := min(n, 200)
			x.add(t, name("topk of many"), line("tuple(y.narrow(d, 0, %d) if x.dim() else y for y in torch.sort(x, dim=d, "+
				"stable=True))", many), []Operand{of(dt, part(many)...), of(dtype.Int64, part(many)...)},
				func(p *Plan, outs []Operand) error { return p.Sort(outs[0], outs[1], in, dim, false) })
			x.add(t, name("argsort"), line("torch.argsort(x, dim=d, stable=True)"), []Operand{of(dtype.Int64, s.sizes...)},
				func(p *Plan, outs []Operand) error { return p.Sort(Operand{}, outs[0], in, dim, false) })
			if n == 0 {
				continue
			}
			one := func() []Operand { return []Operand{of(dt, part(1)...), of(dtype.Int64, part(1)...)} }
			k := (n + 3) / 4
			x.add(t, name("kthvalue"),
				line("tuple(y.narrow(d, %d, 1) if x.dim() else y for y in torch.sort(x, dim=d, stable=True))", k-1), one(),
				func(p *Plan, outs []Operand) error { return p.Kth(outs[0], outs[1], in, dim, k) })
			if dt == dtype.Bool {
				continue
			}
			x.add(t, name("median"), line("torch.median(x.contiguous(), dim=d)[0]"), one()[:1],
				func(p *Plan, outs []Operand) error { return p.Median(outs[0], Operand{}, in, dim, false) })
			x.add(t, name("nanmedian"), line("torch.nanmedian(x.contiguous(), dim=d)[0]"), one()[:1],
				func(p *Plan, outs []Operand) error { return p.Median(outs[0], Operand{}, in, dim, true) })
			x.add(t, name("mode"), line("torch.mode(torch.as_strided(b, x.shape, x.stride()).contiguous(), dim=d)[0]"), one()[:1],
				func(p *Plan, outs []Operand) error {
					return p.Mode(outs[0], Operand{}, numbers.strided(s.sizes, s.strides), dim)
				})
		}
	}
	x.compare(t, 0)
	t.Logf("%d results, of %d tensors", len(x.lines), r)
}

// The indexes of medians and modes are of elements that have their values.
func TestSortIndexes(t *testing.T) {
	c := openCL(t)
	for _, n := range []int{5, 900, 3000} {
		a := c.dense(t, dtype.Float32, n)
		z := sample(dtype.Float32, n, 8)
		a.set(z)
		for name, run := range map[string]func(p *Plan, v, i Operand) error{
			"median":    func(p *Plan, v, i Operand) error { return p.Median(v, i, a.Operand, 0, false) },
			"nanmedian": func(p *Plan, v, i Operand) error { return p.Median(v, i, a.Operand, 0, true) },
			"mode":      func(p *Plan, v, i Operand) error { return p.Mode(v, i, a.Operand, 0) },
		} {
			v, i := c.dense(t, dtype.Float32, 1), c.dense(t, dtype.Int64, 1)
			p := c.plan(t)
			must(t, run(p, v.Operand, i.Operand))
			must(t, c.run(p))
			at := integers(dtype.Int64, i.data)[0]
			if got, want := v.elements()[0], a.elements()[at]; !nearComplex(got, want, 0) {
				t.Errorf("%s of %d: %v, and element %d is %v", name, n, got, at, want)
			}
		}
	}
}

// A plan that's used again allocates nothing, indexes have 64 bits where they must, and operands that don't fit are
// refused.
func TestSortPlan(t *testing.T) {
	op := func(t dtype.DType, sizes ...int) Operand { return Operand{4096, t, sizes, Dense(sizes...), nil} }
	p := Plan{Scratch: func(int) (device.Ptr, error) { return 4096, nil }}
	v, i, in := op(dtype.Float32, 2, 3000), op(dtype.Int64, 2, 3000), op(dtype.Float32, 2, 3000)
	if n := testing.AllocsPerRun(100, func() {
		p.Reset()
		must(t, p.Sort(v, i, in, 1, false))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for n, wide := range map[int]bool{1 << 20: false, 1 << 31: true} {
		p.Reset()
		must(t, p.Sort(op(dtype.Int8, 4, 5), Operand{}, op(dtype.Int8, 4, n), 1, false))
		for _, c := range p.Calls {
			if c.Spec.Wide != wide {
				t.Errorf("%v of %d: wide is %v", c.Spec, n, c.Spec.Wide)
			}
		}
	}
	p.Reset()
	for want, err := range map[string]error{
		"isn't defined":   p.Sort(op(dtype.Complex64, 3), Operand{}, op(dtype.Complex64, 3), 0, false),
		"dimension 1":     p.Sort(op(dtype.Int8, 3), Operand{}, op(dtype.Int8, 3), 1, false),
		"4 results":       p.Sort(op(dtype.Int8, 4), Operand{}, op(dtype.Int8, 3), 0, false),
		"instead of int8": p.Sort(op(dtype.Int16, 3), Operand{}, op(dtype.Int8, 3), 0, false),
		"of int64":        p.Sort(Operand{}, op(dtype.Int32, 3), op(dtype.Int8, 3), 0, false),
		"3 values and 2":  p.Sort(op(dtype.Int8, 3), op(dtype.Int64, 2), op(dtype.Int8, 3), 0, false),
		"sizes":           p.Sort(op(dtype.Int8, 3, 1), Operand{}, op(dtype.Int8, 3, 2), 0, false),
		"k = 0":           p.Kth(op(dtype.Int8, 1), Operand{}, op(dtype.Int8, 3), 0, 0),
		"from place 3":    p.Kth(op(dtype.Int8, 1), Operand{}, op(dtype.Int8, 3), 0, 4),
		"2 results":       p.Kth(op(dtype.Int8, 2), Operand{}, op(dtype.Int8, 3), 0, 1),
		"of 0 elements":   p.Median(op(dtype.Int8, 1), Operand{}, op(dtype.Int8, 0), 0, false),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(p.Calls) > 0 {
		t.Error("a refused sort left calls")
	}
	empty := Plan{}
	if err := empty.Sort(v, i, in, 1, false); err == nil || !strings.Contains(err.Error(), "Scratch") {
		t.Errorf("without scratch memory: %v", err)
	}
}

// specsOf are the kernels of plans, of operands without memory.
func specsOf(add func(p *Plan) error) []text.Spec {
	p := Plan{Scratch: func(int) (device.Ptr, error) { return 4096, nil }}
	if err := add(&p); err != nil {
		panic(err)
	}
	var all []text.Spec
	for _, c := range p.Calls {
		all = append(all, c.Spec)
	}
	return all
}

// sortSpecs are the kernels of scans and sorts.
func sortSpecs() []text.Spec {
	var all []text.Spec
	for k, dt := range types {
		sizes := [][]int{{2, 5000}, {3, 5000, 2}, {2, 1 << 31}}[k%3]
		in := Operand{4096, dt, sizes, Dense(sizes...), nil}
		one := Operand{4096, dt, slices.Clone(sizes), Dense(sizes...), nil}
		one.Sizes[1] = 1
		few := one
		few.Sizes = slices.Clone(few.Sizes)
		few.Sizes[1] = 7
		if !dt.IsComplex() {
			all = append(all, specsOf(func(p *Plan) error {
				for _, err := range []error{p.Sort(in, Operand{}, in, 1, false), p.Sort(few, Operand{}, in, 1, false),
					p.Sort(few, Operand{}, few, 1, false),
					p.Median(one, Operand{}, few, 1, false), p.Median(one, Operand{}, few, 1, true),
					p.Mode(one, Operand{}, few, 1)} {
					if err != nil {
						return err
					}
				}
				return nil
			})...)
		}
		for _, op := range slices.Sorted(maps.Keys(scans)) {
			r, compute := scans[op], text.Opmath(dt)
			if !r.Defined(compute) {
				continue
			}
			results := []Operand{{4096, dt, sizes, Dense(sizes...), nil}, {4096, dtype.Int64, sizes, Dense(sizes...), nil}}
			short := []Operand{few, few}
			short[1].Type = dtype.Int64
			all = append(all, specsOf(func(p *Plan) error { return p.Scan(op, compute, results[:r.Results()], in, 1) })...)
			all = append(all, specsOf(func(p *Plan) error { return p.Scan(op, compute, short[:r.Results()], few, 1) })...)
		}
	}
	return all
}
