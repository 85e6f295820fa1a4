package kernel

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Distances by every norm, of batches that are broadcast, and their gradients, against PyTorch.
func TestDistanceTorch(t *testing.T) {
	x, dir, r := &comparisons{c: openCL(t)}, t.TempDir(), 0
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64} {
		a, b, g := x.c.dense(t, dt, 200), x.c.dense(t, dt, 200), x.c.dense(t, dt, 200)
		for k, o := range []*array{a, b, g} {
			z := make([]complex128, 200)
			for i := range z {
				z[i] = complex(float64(i*(7+4*k)%23)/4-2, 0)
			}
			o.set(z)
		}
		files := strings.Join([]string{a.file(t, dir, 0), b.file(t, dir, 1), g.file(t, dir, 2)}, " ")
		for _, norm := range []float64{0, 0.5, 1, 1.5, 2, 3, math.Inf(1)} {
			for _, s := range []struct{ out, a, as, b, bs []int }{
				{[]int{4, 5}, []int{4, 3}, []int{3, 1}, []int{5, 3}, []int{1, 5}},
				{[]int{2, 4, 5}, []int{2, 4, 3}, []int{12, 1, 4}, []int{2, 5, 3}, []int{15, 3, 1}},
				{[]int{2, 3, 4, 5}, []int{3, 4, 3}, []int{12, 3, 1}, []int{2, 1, 5, 3}, []int{15, 0, 3, 1}},
				{[]int{4, 5}, []int{4, 0}, []int{1, 1}, []int{5, 0}, []int{1, 1}},
				{[]int{0, 5}, []int{0, 3}, []int{3, 1}, []int{5, 3}, []int{3, 1}},
				{[]int{1, 1}, []int{1, 1}, []int{1, 1}, []int{1, 1}, []int{1, 1}},
			} {
				if r++; !sampled(r, 38, 2) {
					continue
				}
				p := strings.Replace(fmt.Sprint(norm), "+Inf", "inf", 1)
				line := fmt.Sprintf("%v|%s|x = torch.as_strided(a, %s, %s).contiguous().requires_grad_(); "+
					"y = torch.as_strided(b, %s, %s).contiguous(); z = torch.cdist(x, y, p=%s, "+
					"compute_mode='donot_use_mm_for_euclid_dist'); ", dt, files, python(s.a), python(s.as), python(s.b), python(s.bs), p)
				first, second := a.strided(s.a, s.as), b.strided(s.b, s.bs)
				what := fmt.Sprintf("of %v of %v and %v by %v", dt, s.a, s.b, norm)
				x.add(t, "cdist "+what, line+"z", []Operand{of(dt, s.out...)}, func(p *Plan, outs []Operand) error {
					return p.Distance(outs[0], first, second, norm)
				})
				if len(s.b) > len(s.a) {
					continue
				}
				x.add(t, "gradient of cdist "+what, line+"torch.autograd.grad(z, x, c[:z.numel()].view(z.shape))[0]",
					[]Operand{of(dt, s.a...)}, func(p *Plan, outs []Operand) error {
						far, err := p.temporary(dt, s.out...)
						if err != nil {
							return err
						}
						if err := p.Distance(far, first, second, norm); err != nil {
							return err
						}
						return p.DistanceBackward(outs[0], g.strided(s.out, Dense(s.out...)), first, second, far, norm)
					})
			}
		}
	}
	x.compare(t, 30)
}

// A plan that's used again allocates nothing, indexes have 64 bits where they must, and operands that don't fit are
// refused.
func TestDistancePlan(t *testing.T) {
	op := func(t dtype.DType, sizes ...int) Operand { return Operand{4096, t, sizes, Dense(sizes...), nil} }
	var p Plan
	out, a, b := op(dtype.Float32, 2, 4, 5), op(dtype.Float32, 2, 4, 3), op(dtype.Float32, 5, 3)
	if n := testing.AllocsPerRun(100, func() {
		p.Reset()
		must(t, p.Distance(out, a, b, 2))
		must(t, p.DistanceBackward(a, out, a, b, out, 2))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for n, wide := range map[int]bool{1 << 20: false, 1 << 31: true} {
		p.Reset()
		must(t, p.Distance(op(dtype.Float32, 1, 1), op(dtype.Float32, 1, n), op(dtype.Float32, 1, n), 1))
		if p.Calls[0].Spec.Wide != wide {
			t.Errorf("of %d: wide is %v", n, p.Calls[0].Spec.Wide)
		}
	}
	p.Reset()
	f32 := dtype.Float32
	for want, err := range map[string]error{
		"by norm -1":       p.Distance(out, a, b, -1),
		"by norm NaN":      p.Distance(out, a, b, math.NaN()),
		"to [2 4 4]":       p.Distance(op(f32, 2, 4, 4), a, b, 2),
		"and [5 4] to":     p.Distance(out, a, op(f32, 5, 4), 2),
		"of int8":          p.Distance(out, a, op(dtype.Int8, 5, 3), 2),
		"isn't broadcast":  p.Distance(out, op(f32, 3, 4, 3), b, 2),
		"of 1 dimensions":  p.Distance(op(f32, 3), a, b, 2),
		"gradient of":      p.DistanceBackward(b, out, a, b, out, 2),
		"with distances":   p.DistanceBackward(a, out, a, b, a, 2),
		"[3] of float32 t": p.Distance(out, a, op(f32, 3), 2),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(p.Calls) > 0 {
		t.Error("a refused operation left calls")
	}
}

// distanceSpecs are the kernels of distances.
func distanceSpecs() []text.Spec {
	var all []text.Spec
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
		for k, norm := range []float64{0, 1, 2, 3, math.Inf(1)} {
			out := Operand{4096, dt, []int{2, 4, 5}, []int{20, 5, 1}, nil}
			a := Operand{4096, dt, []int{2, 4, 3}, []int{12, 3, 1}, nil}
			b := Operand{4096, dt, []int{5, 3}, []int{3, 1 + k%2<<31}, nil}
			all = append(all, specsOf(func(p *Plan) error {
				if err := p.Distance(out, a, b, norm); err != nil {
					return err
				}
				return p.DistanceBackward(a, out, a, b, out, norm)
			})...)
		}
	}
	return all
}
