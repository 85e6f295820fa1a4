package kernel

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

var averagings = []string{Separate: "none", Mean: "mean", Sum: "sum"}

// The negative log-likelihood and its gradient, with weights, ignored targets and smoothing, in every layout, against
// PyTorch's cross entropy of logits.
func TestLossTorch(t *testing.T) {
	x, dir, r := &comparisons{c: openCL(t)}, t.TempDir(), 0
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
		a, g, w := x.c.dense(t, dt, 600), x.c.dense(t, dt, 600), x.c.dense(t, dt, 5)
		at := x.c.dense(t, dtype.Int64, 120)
		z := make([]complex128, 600)
		for i := range z {
			z[i] = complex(float64(i*7%41-20)/8, 0)
		}
		a.set(z)
		g.set(z[3:])
		w.set([]complex128{0.5, 1, 2, 0.25, 1.5})
		for i := range 120 {
			binary.NativeEndian.PutUint64(at.data[8*i:], uint64(i*i%5))
		}
		files := strings.Join([]string{a.file(t, dir, 0), at.file(t, dir, 1), w.file(t, dir, 2), g.file(t, dir, 3)}, " ")
		for _, s := range []struct {
			sizes, strides []int // of the logits, in whose second dimension are 5 classes, or the first of one
			targets        []int
		}{
			{[]int{24, 5}, []int{5, 1}, []int{24}},
			{[]int{24, 5}, []int{1, 24}, []int{24}},
			{[]int{5}, []int{1}, []int{}},
			{[]int{0, 5}, []int{5, 1}, []int{0}},
			{[]int{4, 5, 6}, []int{30, 6, 1}, []int{4, 6}},
			{[]int{2, 5, 3, 20}, []int{300, 1, 100, 5}, []int{2, 3, 20}},
		} {
			for k, name := range averagings {
				averaging := Averaging(k)
				for k, extra := range []string{"", "weight=c", "ignore_index=2", "weight=c, ignore_index=0, label_smoothing=0.25"} {
					if r++; !sampled(r*5, 82, 2) {
						continue
					}
					l := &NLL{Averaging: averaging, Ignore: -100}
					if len(s.sizes) > 1 {
						l.Class = 1
					}
					switch k {
					case 1:
						l.Weight = w.Operand
					case 2:
						l.Ignore = 2
					case 3:
						l.Weight, l.Ignore, l.Smoothing = w.Operand, 0, 0.25
					}
					if k == 2 && len(s.targets) == 0 && averaging == Mean {
						continue
					}
					n := 1
					for _, m := range s.targets {
						n *= m
					}
					targets, result := at.strided(s.targets, Dense(s.targets...)), s.targets
					grad := g.strided(s.targets, Dense(s.targets...))
					if averaging != Separate {
						result = nil
						grad = g.strided(nil, nil)
					}
					in := a.strided(s.sizes, s.strides)
					forward := fmt.Sprintf("x = torch.as_strided(a, %s, %s).contiguous().requires_grad_(); "+
						"y = b[:%d].view(%s); l = F.cross_entropy(x, y, reduction='%s', %s); g = d[:l.numel()].view(l.shape); ",
						python(s.sizes), python(s.strides), n, strings.ReplaceAll(python(s.targets), "[]", "()"), name, extra)
					what := fmt.Sprintf("cross_entropy of %v of %v, %s, %s", dt, s.sizes, name, extra)
					x.add(t, what, fmt.Sprintf("%v|%s|%s(l, torch.autograd.grad(l, x, g)[0])", dt, files, forward),
						[]Operand{of(dt, result...), of(dt, s.sizes...)}, func(p *Plan, outs []Operand) error {
							logs, err := p.temporary(text.Opmath(dt), s.sizes...)
							if err != nil {
								return err
							}
							if err := p.Softmax("log_softmax", logs, in, l.Class); err != nil {
								return err
							}
							// as PyTorch computes it: rounded to the type
							probabilities, err := p.temporary(dt, s.sizes...)
							if err != nil {
								return err
							}
							if err := p.Copy(probabilities, logs); err != nil {
								return err
							}
							total, err := p.temporary(dt)
							if err != nil {
								return err
							}
							if averaging == Separate {
								total = Operand{}
							}
							if err := p.NLL(outs[0], total, probabilities, targets, l); err != nil {
								return err
							}
							middle, err := p.temporary(dt, s.sizes...)
							if err != nil {
								return err
							}
							if err := p.NLLBackward(middle, grad, targets, total, l); err != nil {
								return err
							}
							return p.SoftmaxBackward("log_softmax", outs[1], middle, probabilities, l.Class)
						})
				}
			}
		}
		if !sampled(int(dt), 6, 1) {
			continue
		}
		for k, name := range averagings {
			averaging := Averaging(k)
			for op, torch := range map[string]string{"mse_loss": "F.mse_loss(x, y, reduction='%s')",
				"kl_div_log_target": "F.kl_div(x, y, reduction='%s', log_target=True)",
				"soft_margin_loss":  "F.soft_margin_loss(x, y, reduction='%s')"} {
				var sizes []int
				if averaging == Separate {
					sizes = []int{4, 30}
				} else {
					sizes = []int{1, 1}
				}
				x.add(t, fmt.Sprintf("%s of %v, %s", op, dt, name), fmt.Sprintf("%v|%s|x, y = a[:120], d[:120]; "+torch, dt, files, name),
					[]Operand{of(dt, sizes...)}, func(p *Plan, outs []Operand) error {
						return p.Loss(op, outs[0], averaging, []Operand{a.strided([]int{4, 30}, []int{30, 1}),
							g.strided([]int{4, 30}, []int{30, 1})})
					})
			}
		}
		x.add(t, "gradients of logits", fmt.Sprintf("%v|%s|x = a[:120].requires_grad_(); y = b[:120].to(dtype) / 5; "+
			"z = d[:120].sign(); l = F.binary_cross_entropy_with_logits(x, y, a[200:320], pos_weight=a[300:420], reduction='none'); "+
			"m = F.soft_margin_loss(x, z); (torch.autograd.grad(l, x, d[:120])[0], torch.autograd.grad(m, x, d[4])[0])", dt, files),
			[]Operand{of(dt, 120), of(dt, 120)}, func(p *Plan, outs []Operand) error {
				line := func(a *array, from int) Operand { return a.strided([]int{600}, []int{1}).Narrow(0, from, from+120) }
				y, err := p.temporary(dt, 120)
				if err != nil {
					return err
				}
				z, err := p.temporary(dt, 120)
				if err != nil {
					return err
				}
				if err := p.Elementwise("div", text.Opmath(dt), []Operand{y},
					[]Operand{at.strided([]int{120}, []int{1}), {Type: dt, Value: Int(5)}}); err != nil {
					return err
				}
				if err := p.Elementwise("sign", text.Opmath(dt), []Operand{z}, []Operand{line(g, 0)}); err != nil {
					return err
				}
				if err := p.Elementwise("binary_cross_entropy_with_logits_backward", text.Opmath(dt), outs[:1],
					[]Operand{line(g, 0), line(a, 0), y, line(a, 300), line(a, 200)}); err != nil {
					return err
				}
				return p.Elementwise("soft_margin_loss_backward", text.Opmath(dt), outs[1:],
					[]Operand{g.strided([]int{1}, []int{1}).Narrow(0, 4, 5), line(a, 0), z}, Float(1./120))
			})
	}
	x.compare(t, 8)
}

// A target that no class has is reported, and operands that don't fit are refused.
func TestLossRefused(t *testing.T) {
	c := openCL(t)
	in, at, out, word := c.dense(t, dtype.Float32, 3, 2), c.dense(t, dtype.Int32, 3), c.dense(t, dtype.Float32, 3),
		c.dense(t, dtype.Int32, 1)
	in.set([]complex128{-1, -2, -3, -4, -5, -6})
	at.set([]complex128{1, 2, -1})
	clear(word.data)
	l := &NLL{Class: 1, Ignore: -100, Bad: word.Ptr}
	p := c.plan(t)
	must(t, p.NLL(out.Operand, Operand{}, in.Operand, at.Operand, l))
	must(t, c.run(p))
	if got := fmt.Sprint(out.elements()); got != "[(2+0i) (0+0i) (0+0i)]" || word.data[0] != 1 {
		t.Errorf("%s, reported %v", got, word.data)
	}
	p.Reset()
	one := c.dense(t, dtype.Float32, 1)
	sum := func(l NLL) *NLL { l.Averaging = Sum; return &l }
	for want, err := range map[string]error{
		"to [3], and a total of []":     p.NLL(out.Operand, Operand{}, in.Operand, at.Operand, sum(*l)),
		"with targets of [3 2]":         p.NLL(out.Operand, Operand{}, in.Operand, in.Operand, l),
		"targets of float32":            p.NLL(out.Operand, Operand{}, in.Operand, out.Operand, l),
		"in dimension 2":                p.NLL(out.Operand, Operand{}, in.Operand, at.Operand, &NLL{Class: 2}),
		"weights of [3]":                p.NLL(out.Operand, Operand{}, in.Operand, at.Operand, &NLL{Class: 1, Weight: out.Operand}),
		"to int32":                      p.NLL(at.Operand, Operand{}, in.Operand, at.Operand, l),
		"with a total of []":            p.NLLBackward(in.Operand, one.Operand, at.Operand, Operand{}, &NLL{Class: 1, Averaging: Mean}),
		"of losses of sizes [3]":        p.NLLBackward(in.Operand, out.Operand, at.Operand, Operand{}, sum(*l)),
		"there is no operation \"mse\"": p.Loss("mse", out.Operand, Mean, []Operand{out.Operand, out.Operand}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for n, wide := range map[int]bool{1 << 20: false, 1 << 30: true} {
		p.Reset()
		big := Operand{in.Ptr, dtype.Float32, []int{n, 2}, []int{2, 1}, nil}
		must(t, p.NLL(big.select0(), Operand{}, big, Operand{at.Ptr, dtype.Int64, []int{n}, []int{1}, nil}, l))
		if p.Calls[0].Spec.Wide != wide {
			t.Errorf("of %d: wide is %v", n, p.Calls[0].Spec.Wide)
		}
	}
}

// select0 is element 0 of the last dimension.
func (o Operand) select0() Operand {
	n := len(o.Sizes) - 1
	o.Sizes, o.Strides = o.Sizes[:n], o.Strides[:n]
	return o
}

// lossSpecs are the kernels of losses.
func lossSpecs() []text.Spec {
	var all []text.Spec
	for k, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16} {
		sizes := [][]int{{50, 6}, {5, 6, 7}, {6}, {5, 6, 1 << 31}}[k]
		in := Operand{4096, dt, sizes, Dense(sizes...), nil}
		classes := []dtype.DType{dtype.Int64, dtype.Uint8, dtype.Int32}[k%3]
		target := Operand{4096, classes, sizes[1:], Dense(sizes[1:]...), nil}
		l := &NLL{}
		if len(sizes) > 1 {
			target.Sizes, target.Strides = append([]int{sizes[0]}, sizes[2:]...), Dense(append([]int{sizes[0]}, sizes[2:]...)...)
			l.Class = 1
		}
		loss := target
		loss.Type = dt
		all = append(all, specsOf(func(p *Plan) error {
			if err := p.NLL(loss, Operand{}, in, target, l); err != nil {
				return err
			}
			return p.NLLBackward(in, loss, target, Operand{}, l)
		})...)
	}
	return all
}
