package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Elements chosen by others, of every type, against PyTorch.
func TestMaskedTorch(t *testing.T) {
	x, dir := &comparisons{c: openCL(t)}, t.TempDir()
	for k, dt := range types {
		a, mask := x.c.dense(t, dt, 9000), x.c.dense(t, dtype.Bool, 9000)
		z := sample(dt, 9000, 4)
		for i := range z {
			if i%5 > 1 {
				z[i] = 0
			}
		}
		a.set(z)
		mask.set(sample(dtype.Bool, 9000, 6))
		files := a.file(t, dir, 10*k) + " " + mask.file(t, dir, 10*k+1)
		for j, s := range sortShapes {
			if !sampled(5*k+7*j, 82, 2) {
				continue
			}
			in, m := a.strided(s.sizes, s.strides), mask.strided(s.sizes, s.strides)
			line := func(e string) string {
				return fmt.Sprintf("%v|%s|b = b.bool(); x = torch.as_strided(a, %s, %s); m = torch.as_strided(b, %[3]s, %s); %s", dt,
					files, python(s.sizes), python(s.strides), e)
			}
			name := func(op string) string { return fmt.Sprintf("%s of %v of %v", op, dt, s.sizes) }
			count := 0
			each(s.sizes, s.strides, func(at int) {
				if mask.data[at] != 0 {
					count++
				}
			})
			nonzero := 0
			values := a.elements()
			each(s.sizes, s.strides, func(at int) {
				if values[at] != 0 {
					nonzero++
				}
			})
			if len(s.sizes) > 0 {
				x.add(t, name("nonzero"), line("torch.nonzero(x)"), []Operand{of(dtype.Int64, nonzero, len(s.sizes))},
					func(p *Plan, outs []Operand) error { return p.Nonzero(outs[0], in) })
			}
			x.add(t, name("masked_select"), line("torch.masked_select(x, m)"), []Operand{of(dt, count)},
				func(p *Plan, outs []Operand) error { return p.MaskedSelect(outs[0], in, m) })
			if count > 9000 { // elements of a
				continue
			}
			x.add(t, name("masked_scatter"), line("torch.zeros_like(x).contiguous().masked_scatter(m, a)"),
				[]Operand{of(dt, s.sizes...)}, func(p *Plan, outs []Operand) error {
					if err := p.Fill(outs[0], Int(0)); err != nil {
						return err
					}
					return p.MaskedScatter(outs[0], m, a.Operand)
				})
		}
		if !sampled(k, 18, 2) {
			continue
		}
		line := func(e string) string { return fmt.Sprintf("%v|%s|b = b.bool(); %s", dt, files, e) }
		x.add(t, fmt.Sprintf("masked_select of %v, broadcast", dt), line("torch.masked_select(a[:6].view(2, 1, 3), b[:4].view(4, 1))"),
			[]Operand{of(dt, 6*int(mask.data[0]+mask.data[1]+mask.data[2]+mask.data[3]))}, func(p *Plan, outs []Operand) error {
				return p.MaskedSelect(outs[0], a.strided([]int{2, 4, 3}, []int{3, 0, 1}), mask.strided([]int{4, 1}, []int{1, 1}))
			})
		if dt.IsComplex() {
			continue
		}
		// runs of equal elements, and all different ones
		n := 3000
		v := a.strided([]int{n}, []int{1})
		part := fmt.Sprintf("a[:%d]", n)
		runs, different := 1, map[complex128]bool{values(a)[0]: true}
		for i, y := range values(a)[:n] {
			different[y] = true
			if i > 0 && y != values(a)[i-1] {
				runs++
			}
		}
		x.add(t, fmt.Sprintf("unique_consecutive of %v", dt), line("torch.unique_consecutive("+part+", True, True)"),
			[]Operand{of(dt, runs), of(dtype.Int64, n), of(dtype.Int64, runs)}, func(p *Plan, outs []Operand) error {
				return unique(p, outs, v, Operand{})
			})
		if len(different) < 2 || dt.IsFloating() { // of NaN PyTorch has one each
			continue
		}
		x.add(t, fmt.Sprintf("unique of %v", dt), line("torch.unique("+part+", True, True, True)"),
			[]Operand{of(dt, len(different)), of(dtype.Int64, n), of(dtype.Int64, len(different))},
			func(p *Plan, outs []Operand) error {
				sorted, err := p.temporary(dt, n)
				if err != nil {
					return err
				}
				order, err := p.temporary(dtype.Int64, n)
				if err != nil {
					return err
				}
				if err := p.Sort(sorted, order, v, 0, false); err != nil {
					return err
				}
				return unique(p, outs, sorted, order)
			})
	}
	x.compare(t, 0)
}

func values(a *array) []complex128 { return a.elements() }

// unique adds what unique_consecutive is composed of: values, the run of each element, and lengths of runs.
func unique(p *Plan, outs []Operand, in, order Operand) error {
	starts, err := p.temporary(dtype.Bool, in.Sizes...)
	if err != nil {
		return err
	}
	places, err := p.temporary(dtype.Int64, outs[0].Sizes[0], 1)
	if err != nil {
		return err
	}
	for _, run := range []func() error{
		func() error { return p.Starts(starts, in) },
		func() error { return p.MaskedSelect(outs[0], in, starts) },
		func() error { return p.Inverse(outs[1], starts, order) },
		func() error { return p.Nonzero(places, starts) },
		func() error { return p.Lengths(outs[2], viewed(places, outs[0].Sizes[0]), in.Sizes[0]) },
	} {
		if err := run(); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for the place of each element of a tensor.
func each(sizes, strides []int, f func(at int)) {
	if len(sizes) == 0 {
		f(0)
		return
	}
	for k := range sizes[0] {
		each(sizes[1:], strides[1:], func(at int) { f(k*strides[0] + at) })
	}
}

// Results with fewer places than there are elements, or more, are written up to what there is, and no further. A plan
// that's used again allocates nothing, and operands that don't fit are refused.
func TestMaskedPlan(t *testing.T) {
	c := openCL(t)
	in, few, many := c.dense(t, dtype.Int8, 5), c.dense(t, dtype.Int8, 2), c.dense(t, dtype.Int8, 9)
	in.set([]complex128{1, 0, 2, 3, 4})
	many.set(make([]complex128, 9))
	p := c.plan(t)
	must(t, p.MaskedSelect(few.Operand, in.Operand, in.Operand))
	must(t, p.MaskedSelect(many.Operand, in.Operand, in.Operand))
	must(t, c.run(p))
	few.intact(t, "masked_select")
	if got := fmt.Sprint(integers(dtype.Int8, few.data), integers(dtype.Int8, many.data)); got != "[1 2] [1 2 3 4 0 0 0 0 0]" {
		t.Error(got)
	}
	memory := in.Operand.Ptr
	q := Plan{Scratch: func(int) (device.Ptr, error) { return memory, nil }}
	at := Operand{memory, dtype.Int64, []int{9, 1}, []int{1, 1}, nil}
	big := Operand{memory, dtype.Int8, []int{90000}, []int{1}, nil}
	if n := testing.AllocsPerRun(100, func() {
		q.Reset()
		must(t, q.Nonzero(at, big))
		must(t, q.MaskedSelect(many.Operand, big, big))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	q.Reset()
	for want, err := range map[string]error{
		"nonzero of 1 dimensions to [9]": q.Nonzero(many.Operand, in.Operand),
		"of 2 dimensions":                q.MaskedSelect(at, Operand{memory, dtype.Int64, []int{9}, []int{1}, nil}, in.Operand),
		"isn't broadcast":                q.MaskedSelect(many.Operand, many.Operand, in.Operand),
		"masked_scatter of int64":        q.MaskedScatter(many.Operand, many.Operand, at),
		"starts of runs":                 q.Starts(in.Operand, in.Operand),
		"runs of [5] elements":           q.Inverse(in.Operand, in.Operand, Operand{}),
		"lengths of runs":                q.Lengths(in.Operand, in.Operand, 4),
		"a number as mask":               q.MaskedSelect(many.Operand, many.Operand, Operand{Type: dtype.Bool, Value: Int(1)}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(q.Calls) > 0 {
		t.Error("a refused operation left calls")
	}
	for n, wide := range map[int]bool{1 << 20: false, 1 << 31: true} {
		q.Reset()
		must(t, q.Nonzero(at, Operand{memory, dtype.Bool, []int{n}, []int{1}, nil}))
		runs := map[bool]int{false: 3, true: 5}[wide] // blocks share a scan of many counts
		first, last := &q.Calls[0].Spec, &q.Calls[len(q.Calls)-1].Spec
		if len(q.Calls) != runs || last.Family != MaskedFamily || first.Wide != wide || last.Wide != wide {
			t.Errorf("of %d: %d runs, wide is %v and %v", n, len(q.Calls), first.Wide, last.Wide)
		}
	}
}

// maskedSpecs are the kernels of masked operations.
func maskedSpecs() []text.Spec {
	var all []text.Spec
	for k, dt := range types {
		sizes := [][]int{{5000}, {50, 60}, {5, 6, 70}}[k%3]
		in := Operand{4096, dt, sizes, make([]int, len(sizes)), nil}
		line := Operand{4096, dt, []int{9 + k%2<<32}, []int{1}, nil}
		at := Operand{4096, dtype.Int64, []int{9, len(sizes)}, []int{len(sizes), 1}, nil}
		in.Strides[len(sizes)-1] = 2
		all = append(all, specsOf(func(p *Plan) error {
			if err := p.Nonzero(at, in); err != nil {
				return err
			}
			if err := p.MaskedSelect(line, in, in); err != nil {
				return err
			}
			return p.MaskedScatter(in, in, line)
		})...)
	}
	return all
}
