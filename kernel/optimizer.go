package kernel

import (
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Step is a step of an optimizer. Fields that a kind of optimizer doesn't have are left out.
type Step struct {
	LR, WeightDecay, Momentum, Dampening, Beta1, Beta2, Eps, LRDecay float64
	Nesterov, Maximize                                               bool
	First                                                            bool // momentum begins as the gradient

	// LRTensor, GradScale and FoundInf are tensors of one float32 element, or the zero Operand. LRTensor is instead of LR.
	// Gradients are divided by GradScale, and written. Where FoundInf is 1 nothing is done.
	LRTensor, GradScale, FoundInf Operand
}

// stepOp is what's done to the elements of each tensor: operands o0 and so on, as T variables x0 and so on, of which
// some are written.
type stepOp struct {
	operands int
	writes   []int
	numbers  []string // names of the call's numbers
	steps    bool     // each tensor has a number of them
	prepare  string   // statements of a block
	each     string
}

const (
	stepGradient = "if (maximize != 0) g = -g; "
	stepDecay    = "if (decay != 0) g += p * decay; "
	// 1 - beta^steps, without the loss of digits of a power that is almost 1; logarithms are of beta
	stepCorrections = "T correction1 = -expm1(steps[0] * log1), correction2 = sqrt(-expm1(steps[0] * log2)); "
	stepMoments     = "m = m + rest1 * (g - m); v = v * beta2 + g * g * rest2; "
	stepAdam        = stepGradient + stepDecay + stepMoments
	stepAdamW       = stepGradient + "p -= lr * decay * p; " + stepMoments
	stepMove        = "p -= lr / correction1 * m / (sqrt(v) / correction2 + eps); "
	stepMoveMost    = "u = t_max(u, v); p -= lr / correction1 * m / (sqrt(u) / correction2 + eps); "
)

var stepMomentNumbers = []string{"lr", "decay", "maximize", "eps", "beta2", "rest1", "rest2", "log1", "log2"}

// listSteps are the steps of optimizers, by their names in ATen without _fused_, and loss scaling's unscale.
var listSteps = map[string]*stepOp{
	"sgd": {2, []int{0}, []string{"lr", "decay", "maximize"}, false, "", stepGradient + stepDecay + "p -= lr * g;"},
	"sgd_momentum": {3, []int{0, 2},
		[]string{"lr", "decay", "maximize", "momentum", "rest", "nesterov", "first"}, false, "",
		stepGradient + stepDecay + "m = first != 0 ? g : m * momentum + g * rest; " +
			"g = nesterov != 0 ? g + m * momentum : m; p -= lr * g;"},
	"adam":          {4, []int{0, 2, 3}, stepMomentNumbers, true, stepCorrections, stepAdam + stepMove},
	"adamw":         {4, []int{0, 2, 3}, stepMomentNumbers, true, stepCorrections, stepAdamW + stepMove},
	"adam_amsgrad":  {5, []int{0, 2, 3, 4}, stepMomentNumbers, true, stepCorrections, stepAdam + stepMoveMost},
	"adamw_amsgrad": {5, []int{0, 2, 3, 4}, stepMomentNumbers, true, stepCorrections, stepAdamW + stepMoveMost},
	"adagrad": {3, []int{0, 2}, []string{"lr", "decay", "maximize", "eps", "lr_decay"}, true,
		"T rate = lr / (1 + (steps[0] - 1) * lr_decay); ",
		stepGradient + stepDecay + "m += g * g; p -= rate * g / (sqrt(m) + eps);"},
	"unscale": {operands: 1, writes: []int{0},
		each: "if (isnan(p) || isinf(p)) found[0] = 1; if (scale != 1) p *= scale;"},
}

// stepNames are the operands' names in code.
var stepNames = [...]string{"p", "g", "m", "v", "u"}

// Optimize adds a step of an optimizer: sgd, adam, adamw or adagrad, on lists of parameters, their gradients, and
// states as PyTorch's fused optimizers have them:
//
//   - sgd: the momentum, if Step.Momentum isn't 0
//   - adam and adamw: averages, averages of squares and, with amsgrad, the largest of those
//   - adagrad: sums of squares
//
// All but sgd have steps, one float32 element each, which are counted up before. The tensors of a parameter have its
// sizes, and their elements one after the other, in the same order. Types are floating-point ones, of each list its
// own.
func (p *Plan) Optimize(op string, step *Step, params, grads []Operand, states [][]Operand, steps []Operand) error {
	kind := op
	if op == "sgd" && step.Momentum != 0 {
		kind = "sgd_momentum"
	} else if (op == "adam" || op == "adamw") && len(states) == 3 {
		kind = [...]string{"adam_amsgrad", "adamw_amsgrad"}[len(op)-4]
	}
	o, ok := listSteps[kind]
	if !ok || op == "unscale" || len(op) > len("adagrad") {
		return fmt.Errorf("kernel: there is no optimizer %q", op)
	}
	if len(states) != o.operands-2 || o.steps != (steps != nil) {
		return fmt.Errorf("kernel: %s with %d lists of states, and numbers of steps: %v", op, len(states), steps != nil)
	}
	s := text.Spec{Family: ForeachFamily, Op: kind, Compute: dtype.Float32, Block: threads, Form: listStep,
		Outs: uint8(o.operands)}
	if len(params) > 0 {
		s.Compute = text.Opmath(params[0].Type)
	}
	if o.steps {
		s.Extra[1] |= listCount
	}
	var lists [5][]Operand
	lists[0], lists[1] = params, grads
	copy(lists[2:], states)
	return p.step(&s, step, lists[:o.operands], steps)
}

// Unscale adds multiplying gradients by the float32 at inverse, and setting the float32 at found to 1 if one of their
// elements isn't finite: _amp_foreach_non_finite_check_and_unscale_.
func (p *Plan) Unscale(grads []Operand, found, inverse Operand) error {
	s := text.Spec{Family: ForeachFamily, Op: "unscale", Compute: dtype.Float32, Block: threads, Form: listStep, Outs: 1}
	if found.Type == dtype.Invalid || inverse.Type == dtype.Invalid {
		return fmt.Errorf("kernel: unscale without found_inf and inv_scale")
	}
	lists := [1][]Operand{grads}
	return p.step(&s, &Step{GradScale: inverse, FoundInf: found}, lists[:], nil)
}

// step adds the runs of a step. Tensors of different types, and so of different types to compute in, are in runs of
// their own.
func (p *Plan) step(s *text.Spec, step *Step, lists [][]Operand, steps []Operand) error {
	n := len(lists[0])
	for k := range lists {
		if len(lists[k]) != n || steps != nil && len(steps) != n {
			return fmt.Errorf("kernel: %s: %d tensors in list %d and %d numbers of steps, and %d tensors in the first", s.Op,
				len(lists[k]), k, len(steps), n)
		}
	}
	for i, o := range []*Operand{&step.LRTensor, &step.GradScale, &step.FoundInf} {
		switch {
		case o.Type == dtype.Invalid:
		case o.Type != dtype.Float32 || o.Value != nil || o.Count() != 1:
			return fmt.Errorf("kernel: %s with a tensor of %v of %v, which must be one float32", s.Op, o.Type, o.Sizes)
		default:
			s.Extra[1] |= listLR << i
		}
	}
	l := p.listOf(s)
	flush := func() {
		if c := p.flush(l); c != nil {
			for _, o := range [...]*Operand{&step.LRTensor, &step.GradScale, &step.FoundInf} {
				if o.Type != dtype.Invalid {
					c.Args.Pointer(o.Ptr)
				}
			}
			for _, name := range listSteps[s.Op].numbers {
				v := step.number(name)
				v.add(&c.Args, c.Spec.Compute)
			}
		}
	}
	var operands [5]Operand
	for j := range n {
		all := operands[:len(lists)]
		for k := range lists {
			all[k] = lists[k][j]
			if !all[k].Type.IsFloating() {
				return fmt.Errorf("kernel: %s, tensor %d: list %d is of %v", s.Op, j, k, all[k].Type)
			}
		}
		dense, err := p.listed(s, all)
		if err == nil && !dense {
			err = fmt.Errorf("its elements don't lie one after the other, in the same order in all lists")
		}
		if err != nil {
			return fmt.Errorf("kernel: %s, tensor %d: %w", s.Op, j, err)
		}
		if p.space.count == 0 {
			continue
		}
		s.Compute = text.Opmath(all[0].Type)
		if l.n > 0 && (l.spec.Types != s.Types || l.n == slotsOf(l.spec)) {
			flush()
		}
		l.spec = *s
		for k := range all {
			l.ptrs[k][l.n] = all[k].Ptr
		}
		if steps != nil {
			if steps[j].Type != dtype.Float32 || steps[j].Value != nil || steps[j].Count() != 1 {
				return fmt.Errorf("kernel: %s, tensor %d: the number of steps is %v of %v", s.Op, j, steps[j].Type, steps[j].Sizes)
			}
			l.steps[l.n] = steps[j].Ptr
		}
		l.counts[l.n] = p.space.count
		l.n++
	}
	flush()
	return nil
}

// number is a number of a step by its name in code.
func (s *Step) number(name string) Number {
	flag := map[bool]float64{true: 1}
	switch name {
	case "lr":
		return Number{Float: s.LR}
	case "decay":
		return Number{Float: s.WeightDecay}
	case "maximize":
		return Number{Float: flag[s.Maximize]}
	case "momentum":
		return Number{Float: s.Momentum}
	case "rest":
		return Number{Float: 1 - s.Dampening}
	case "nesterov":
		return Number{Float: flag[s.Nesterov]}
	case "first":
		return Number{Float: flag[s.First]}
	case "eps":
		return Number{Float: s.Eps}
	case "beta2":
		return Number{Float: s.Beta2}
	case "rest1":
		return Number{Float: 1 - s.Beta1}
	case "rest2":
		return Number{Float: 1 - s.Beta2}
	case "log1":
		return Number{Float: math.Log(s.Beta1)}
	case "log2":
		return Number{Float: math.Log(s.Beta2)}
	case "lr_decay":
		return Number{Float: s.LRDecay}
	}
	panic("kernel: a step has no " + name)
}

func (w *writer) listStep(s text.Spec) error {
	o, ok := listSteps[s.Op]
	if !ok || !s.Compute.IsFloating() {
		return fmt.Errorf("kernel: there is no step %s of %v", s.Op, s.Compute)
	}
	w.listParams(s)
	for i, name := range [...]string{"lr_at", "scale_at", "found"} {
		if s.Extra[1]>>i&listLR != 0 {
			w.Param("GLOBAL f32 *%s", name)
		}
	}
	for _, name := range o.numbers {
		w.Param("T %s", name)
	}
	w.Function("list_" + s.Op)
	unscale := s.Op == "unscale"
	if s.Extra[1]&listFound != 0 && !unscale {
		w.Line("\tif (found[0] == 1)")
		w.Line("\t\treturn;")
	}
	w.listPlace(s)
	if s.Extra[1]&listLR != 0 {
		w.Line("\tlr = (T)lr_at[0];")
	}
	if s.Extra[1]&listScale != 0 {
		w.Line("\tT scale = (T)scale_at[0];")
	}
	w.Line("\t%s", o.prepare)
	w.Line("\tfor (I i = from + THREAD; i < to; i += THREADS) {")
	for k := range o.operands {
		w.Line("\t\tT %s = %s;", stepNames[k], text.Converted(s.Compute, s.Types[k], fmt.Sprintf("o%d[i]", k)))
	}
	if s.Extra[1]&listScale != 0 && !unscale {
		w.Line("\t\tg /= scale;")
		w.Line("\t\to1[i] = %s;", text.Narrowed(s.Types[1], s.Compute, "g"))
	}
	w.Line("\t\t%s", o.each)
	for _, k := range o.writes {
		w.Line("\t\to%d[i] = %s;", k, text.Narrowed(s.Types[k], s.Compute, stepNames[k]))
	}
	w.Line("\t}")
	return nil
}

// UpdateScale adds the change of a loss scale: _amp_update_scale_. scale and found are one float32 each, tracker, which
// counts the steps without a change, one int32.
func (p *Plan) UpdateScale(scale, tracker, found Operand, growth, backoff float64, interval int) error {
	for k, o := range [...]*Operand{&scale, &found, &tracker} {
		if want := [...]dtype.DType{dtype.Float32, dtype.Float32, dtype.Int32}[k]; o.Type != want || o.Count() != 1 {
			return fmt.Errorf("kernel: the update of a scale with %v of %v, which must be one %v", o.Type, o.Sizes, want)
		}
	}
	s := text.Spec{Family: ForeachFamily, Op: "update_scale", Compute: dtype.Float32, Block: 1, Form: listScaleUpdate,
		Outs: 2, Ins: 1}
	s.Types[0], s.Types[1], s.Types[2] = dtype.Float32, dtype.Int32, dtype.Float32
	c := p.blocks(s, device.Dim{X: 1, Y: 1, Z: 1})
	for _, o := range [...]*Operand{&scale, &tracker, &found} {
		c.Args.Pointer(o.Ptr)
	}
	for _, factor := range [...]float64{growth, backoff} { // of 64 bits, in two numbers
		high := float32(factor)
		c.Args.Float32(high)
		c.Args.Float32(float32(factor - float64(high)))
	}
	c.Args.Int32(int32(interval))
	return nil
}

func (w *writer) scaleUpdate(s text.Spec) {
	w.Pointers(s)
	w.Param("f32 growth, f32 growth_rest, f32 backoff, f32 backoff_rest, i32 interval")
	w.Function("list_update_scale")
	w.Line("\tf32 old = o0[0];")
	w.Line("\tif (i0[0] != 0) {")
	w.Line("\t\to0[0] = fma(old, backoff, old * backoff_rest);")
	w.Line("\t\to1[0] = 0;")
	w.Line("\t} else if (o1[0] + 1 == interval) {")
	w.Line("\t\tf32 grown = fma(old, growth, old * growth_rest);")
	w.Line("\t\tif (!isinf(grown) && !isnan(grown))")
	w.Line("\t\t\to0[0] = grown;")
	w.Line("\t\to1[0] = 0;")
	w.Line("\t} else {")
	w.Line("\t\to1[0] += 1;")
	w.Line("\t}")
}
