package kernel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// listSizes are sizes of the tests' lists of tensors: more than a run takes, none, one element, more than a block's.
func listSizes() []int {
	sizes := []int{3, 1, 0, foreachChunk + 5, 70, 2*foreachChunk + 1}
	for k := range 40 {
		sizes = append(sizes, k+1)
	}
	return sizes
}

// lists makes a list of tensors one after the other, and PyTorch's expression for it.
func (c *cl) lists(t *testing.T, dt dtype.DType, sizes []int, seed int, positive bool) (whole *array, all []Operand) {
	n := 0
	for _, s := range sizes {
		n += s
	}
	whole = c.dense(t, dt, n)
	z := make([]complex128, n)
	for i := range z {
		x := float64((i*(7919+2*seed)+seed*31)%257-128) / 64
		if positive {
			x = max(x, -x) + 1.0/64
		}
		if !dt.IsFloating() && !dt.IsComplex() {
			x = float64(int(x * 4))
		}
		z[i] = complex(x, 0)
		if dt.IsComplex() {
			z[i] += complex(0, float64(i%5)/4)
		}
	}
	whole.set(z)
	at := 0
	for _, s := range sizes {
		all = append(all, Operand{whole.Ptr.Add(at * dt.Size()), dt, []int{s}, []int{1}, nil})
		at += s
	}
	return whole, all
}

func split(name string, sizes []int) string {
	return fmt.Sprintf("list(torch.split(%s, %s))", name, python(sizes))
}

// Operations on lists of tensors, with numbers for all and for each, against PyTorch's foreach.
func TestForeachTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	sizes := listSizes()
	var lines, names []string
	var results []*array
	for _, dt := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Int32, dtype.Complex64, dtype.Float64} {
		if testutil.Short() && dt != dtype.Float32 {
			continue
		}
		var ins [3][]Operand
		var files []string
		for k := range ins {
			a, all := c.lists(t, dt, sizes, k, k == 2)
			ins[k], files = all, append(files, a.file(t, dir, 10*int(dt)+k))
		}
		a, b, x := split("a", sizes), split("b", sizes), split("c", sizes)
		one := []Operand{{ins[0][4].Ptr, dt, nil, nil, nil}} // element 0 of tensor 4
		each := make([]*Number, len(sizes))
		for k := range each {
			each[k] = Int(int64(k % 5))
		}
		eachText := fmt.Sprintf("[k %% 5 for k in range(%d)]", len(sizes))
		p := &Plan{Scratch: func(n int) (device.Ptr, error) { return c.dense(t, dtype.Uint8, n).Ptr, nil }}
		add := func(name, expression string, out *array, err error) {
			t.Helper()
			if err == nil {
				err = c.run(p)
			}
			p.Reset()
			if err != nil {
				t.Errorf("%s of %v: %v", name, dt, err)
				return
			}
			lines = append(lines, fmt.Sprintf("%v|%s|torch.cat([x.reshape(-1) for x in %s])", dt,
				strings.Join(files, " "), expression))
			results, names = append(results, out), append(names, fmt.Sprintf("%s of %v", name, dt))
		}
		foreach := func(op, expression string, ins [][]Operand, numbers ...[]*Number) {
			t.Helper()
			out, outs := c.lists(t, dt, sizes, 0, false)
			err := p.Foreach(op, text.Opmath(dt), [][]Operand{outs}, ins, numbers...)
			if len(p.Calls) > 6 {
				t.Errorf("%s of %d tensors is %d runs", op, len(sizes), len(p.Calls))
			}
			add(op, expression, out, err)
		}
		two := []*Number{Int(2)}
		foreach("add", "torch._foreach_add("+a+", "+b+", alpha=2)", [][]Operand{ins[0], ins[1]}, two)
		foreach("addcmul", "torch._foreach_addcmul("+a+", "+b+", "+x+", "+eachText+")", ins[:], each)
		if testutil.Short() {
			continue
		}
		foreach("neg", "torch._foreach_neg("+a+")", ins[:1])
		foreach("mul", fmt.Sprintf("torch._foreach_mul(%s, a[%d].clone())", a, sizes[0]+sizes[1]+sizes[2]+sizes[3]),
			[][]Operand{ins[0], one})
		if dt.IsFloating() {
			foreach("sqrt", "torch._foreach_sqrt("+x+")", ins[2:])
			foreach("maximum", "torch._foreach_maximum("+a+", "+b+")", ins[:2])
		}
		{ // of which some are transposed, and others of another type
			out, outs := c.lists(t, dt, []int{6, 6, 6}, 0, false)
			for k := range outs {
				outs[k].Sizes, outs[k].Strides = []int{2, 3}, []int{3, 1}
			}
			x := []Operand{viewed(ins[0][7], 2, 3), viewed(ins[0][20], 2, 3), viewed(ins[0][30], 2, 3)}
			for k := range x {
				x[k].Ptr = ins[0][3].Ptr.Add(6 * k * dt.Size())
			}
			x[1].Strides = []int{1, 2}
			at := sizes[0] + sizes[1] + sizes[2]
			add("transposed", fmt.Sprintf("[a[%d:][:6], a[%d:][:6].view(3, 2).T, a[%d:][:6]]", at, at+6, at+12), out,
				p.Foreach("copy", text.Opmath(dt), [][]Operand{outs}, [][]Operand{x}))
		}
		if !dt.IsFloating() {
			continue
		}
		for op, order := range map[string]string{"norm2": "2", "norm1": "1", "norm_inf": "inf"} {
			out := c.dense(t, dt, len(sizes))
			var outs []Operand
			for k := range sizes {
				outs = append(outs, Operand{out.Ptr.Add(k * dt.Size()), dt, nil, nil, nil})
			}
			add(op, "[x.double().norm("+order+") if x.numel() else x.double().sum() for x in "+a+"]", out,
				p.ForeachReduce(op, text.Opmath(dt), outs, ins[0]))
			lines[len(lines)-1] += ".to(dtype)"
		}
	}
	for k, want := range torch(t, lines) {
		if len(want) != 1 {
			t.Errorf("PyTorch has %d results of %s", len(want), lines[k])
			continue
		}
		results[k].equal(t, names[k], want[0], 5*tolerance(results[k].Type))
	}
}

// Steps of optimizers against PyTorch's fused ones: parameters, gradients and states, also of other types, where a
// gradient isn't finite, and by a learning rate in memory.
func TestOptimizeTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	sizes := listSizes()
	var lines, names []string
	var results [][]*array
	const common = "maximize=%s, grad_scale=%s, found_inf=%s)"
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16} {
		for i, op := range []string{"adamw", "sgd", "sgd_momentum", "adam", "adagrad", "adam_amsgrad", "adamw_amsgrad"} {
			for variant := range 4 {
				if testutil.Short() && (dt != dtype.Float32 || i > 0 || variant != 1) || dt.Size() == 2 && (i+variant)%3 != 0 {
					continue
				}
				o := listSteps[op]
				var lists [][]Operand
				var arrays []*array
				var files []string
				for k := range o.operands {
					a, all := c.lists(t, dt, sizes, k, k > 2)
					lists, arrays = append(lists, all), append(arrays, a)
					files = append(files, a.file(t, dir, 1000*len(lines)+k))
				}
				scalar := func(x float64) *array {
					a := c.dense(t, dtype.Float32, 1)
					a.set([]complex128{complex(x, 0)})
					return a
				}
				count := scalar(3)
				var steps []Operand
				if o.steps {
					for range sizes {
						steps = append(steps, count.Operand)
					}
				}
				step := &Step{LR: 0.125, WeightDecay: 0.01, Momentum: 0.9, Dampening: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-6,
					LRDecay: 0.2, Maximize: variant == 2, Nesterov: variant == 2, First: variant == 3}
				scale, found := "None", "None"
				if variant == 1 || variant == 3 {
					step.GradScale, step.FoundInf = scalar(4).Operand, scalar(float64(variant/3)).Operand
					scale, found = "torch.tensor(4.)", fmt.Sprintf("torch.tensor(%d.)", variant/3)
				}
				if variant == 2 {
					step.LR, step.LRTensor = 7, scalar(0.125).Operand
				}
				rest := fmt.Sprintf(common, pythonBool(step.Maximize), scale, found)
				var code []string
				for k := range o.operands {
					code = append(code, split(string(rune('a'+k)), sizes))
				}
				name := strings.TrimSuffix(strings.TrimSuffix(op, "_amsgrad"), "_momentum")
				call := ""
				stepText := fmt.Sprintf("[torch.tensor(3.) for _ in range(%d)]", len(sizes))
				switch name {
				case "sgd":
					if op == "sgd" {
						step.Momentum = 0
						code = append(code, "[]")
					}
					call = fmt.Sprintf("%s, lr=0.125, weight_decay=0.01, momentum=%v, dampening=0.1, nesterov=%s, is_first_step=%s, ",
						strings.Join(code, ", "), step.Momentum, pythonBool(step.Nesterov && op != "sgd"), pythonBool(step.First))
					step.Nesterov = step.Nesterov && op != "sgd"
				case "adagrad":
					call = strings.Join(code, ", ") + ", " + stepText + ", lr=0.125, lr_decay=0.2, weight_decay=0.01, eps=1e-6, "
				default:
					most := strings.HasSuffix(op, "_amsgrad")
					if !most {
						code = append(code, "[]")
					}
					call = strings.Join(code, ", ") + ", " + stepText + ", lr=0.125, beta1=0.9, beta2=0.999, weight_decay=0.01, " +
						"eps=1e-6, amsgrad=" + pythonBool(most) + ", "
				}
				var p Plan
				err := p.Optimize(name, step, lists[0], lists[1], lists[2:], steps)
				if len(p.Calls) > 6 {
					t.Errorf("%s of %d tensors is %d runs", op, len(sizes), len(p.Calls))
				}
				if err == nil {
					err = c.run(&p)
				}
				if err != nil {
					t.Errorf("%s of %v: %v", op, dt, err)
					continue
				}
				letters := strings.Split("abcde"[:o.operands], "")
				before, after := "", strings.Join(letters, ", ")
				if name == "sgd" && dt.Size() == 2 { // PyTorch's leaves vectors of 16 bits as they are on the processor
					before = fmt.Sprintf("%s, = (x.float() for x in (%[1]s,)); ", after)
					after = strings.Join(letters, ".to(dtype), ") + ".to(dtype)"
				}
				lines = append(lines, fmt.Sprintf("%v|%s|%storch._fused_%s_(%s%s; (%s,)", dt, strings.Join(files, " "), before,
					name, call, rest, after))
				results, names = append(results, arrays), append(names, fmt.Sprintf("%s of %v, variant %d", op, dt, variant))
			}
		}
	}
	for k, want := range torch(t, lines) {
		if len(want) != len(results[k]) {
			t.Errorf("PyTorch has %d results of %s", len(want), lines[k])
			continue
		}
		for i, a := range results[k] {
			a.equal(t, fmt.Sprintf("%s, list %d", names[k], i), want[i], 5*tolerance(a.Type))
		}
	}
}

// Loss scaling against PyTorch's: gradients that are finite and not, and the scale that follows.
func TestLossScaleTorch(t *testing.T) {
	c, dir := openCL(t), t.TempDir()
	var lines []string
	var results [][]*array
	for k, bad := range []string{"", "inf", "nan"} {
		for j, inverse := range []float64{0.25, 1} {
			whole, grads := c.lists(t, dtype.Float32, listSizes(), k, false)
			if bad != "" {
				z := whole.elements()
				z[len(z)-1] = map[string]complex128{"inf": complex(-math.Inf(1), 0), "nan": complex(math.NaN(), 0)}[bad]
				whole.set(z)
			}
			file := whole.file(t, dir, 2*k+j)
			words := c.dense(t, dtype.Float32, 3) // scale, found, inverse
			words.set([]complex128{65536.5, 0, complex(inverse, 0)})
			tracker := c.dense(t, dtype.Int32, 1)
			tracker.set([]complex128{complex(float64(2-j), 0)})
			word := func(k int) Operand { return Operand{words.Ptr.Add(4 * k), dtype.Float32, nil, nil, nil} }
			var p Plan
			must(t, p.Unscale(grads, word(1), word(2)))
			must(t, p.UpdateScale(word(0), viewed(tracker.Operand), word(1), 1.7, 0.3, 3))
			must(t, c.run(&p))
			lines = append(lines, fmt.Sprintf("float32|%s|w = torch.tensor([65536.5, 0, %v]); "+
				"t = torch.tensor([%d], dtype=torch.int32); "+
				"torch._amp_foreach_non_finite_check_and_unscale_([a], w[1:2], w[2:3]); "+
				"torch._amp_update_scale_(w[0:1], t, w[1:2], 1.7, 0.3, 3); (a, w, t)", file, inverse, 2-j))
			results = append(results, []*array{whole, words, tracker})
		}
	}
	for k, want := range torch(t, lines) {
		if len(want) != 3 {
			t.Errorf("PyTorch refuses %s", lines[k])
			continue
		}
		for i, a := range results[k] {
			a.equal(t, fmt.Sprintf("%s, result %d", lines[k], i), want[i], 0)
		}
	}
}

// Lists that don't fit are refused. A plan that's used again allocates nothing. Large tensors have indexes of 64 bits.
func TestListPlan(t *testing.T) {
	op := func(sizes ...int) Operand {
		return Operand{Ptr: 4096, Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	p := Plan{Scratch: func(int) (device.Ptr, error) { return 4096, nil }}
	x, y := []Operand{op(3), op(4, 5), op(0)}, []Operand{op(3), op(4, 5), op(0)}
	scalars := []Operand{op(), op(), op()}
	outs, ins, one := [][]Operand{x}, [][]Operand{x, y}, []*Number{Int(1)}
	states := [][]Operand{x, x}
	step := &Step{LR: 1, GradScale: op(1)}
	if n := testing.AllocsPerRun(100, func() {
		p.Reset()
		must(t, p.Foreach("add", dtype.Float32, outs, ins, one))
		must(t, p.ForeachReduce("norm2", dtype.Float32, scalars, x))
		must(t, p.Optimize("adam", step, x, x, states, scalars))
		must(t, p.Unscale(x, scalars[0], scalars[1]))
		must(t, p.UpdateScale(scalars[0], Operand{4096, dtype.Int32, nil, nil, nil}, scalars[0], 2, 0.5, 7))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if len(p.Calls) != 6 {
		t.Errorf("%d runs", len(p.Calls))
	}
	p.Reset()
	must(t, p.Foreach("neg", dtype.Float32, [][]Operand{{op(1<<16, 1<<15)}}, [][]Operand{{op(1<<16, 1<<15)}}))
	if !p.Calls[0].Spec.Wide || p.Calls[0].Grid.X != 1<<31/foreachChunk {
		t.Errorf("%+v", p.Calls[0])
	}
	p.Reset()
	half := op(3)
	half.Type = dtype.Int32
	for k, err := range []error{
		p.Foreach("add", dtype.Float32, outs, [][]Operand{x, y[:2]}, one), p.Foreach("add", dtype.Float32, outs, ins),
		p.Foreach("add", dtype.Float32, outs, [][]Operand{x, {op(3), op(4, 4), op(0)}}, one),
		p.Foreach("add", dtype.Float32, outs, ins, []*Number{Int(1), Int(2)}),
		p.ForeachReduce("norm2", dtype.Float32, x, x), p.ForeachReduce("amax", dtype.Float32, scalars, x),
		p.ForeachReduce("argmax", dtype.Float32, scalars, x), p.Optimize("adam", step, x, x, states, nil),
		p.Optimize("adam", step, x, x, states[:1], scalars), p.Optimize("adam", step, x, x[:2], states, scalars),
		p.Optimize("rmsprop", step, x, x, states, scalars), p.Optimize("unscale", step, x, x, nil, nil),
		p.Optimize("sgd", &Step{LRTensor: op(2)}, x, x, nil, nil), p.Unscale([]Operand{half}, op(), op()),
		p.Unscale(x, op(), Operand{}), p.UpdateScale(op(), op(), op(), 2, 0.5, 3),
		p.Optimize("sgd", &Step{}, []Operand{{4096, dtype.Float32, []int{2, 2}, []int{4, 1}, nil}},
			[]Operand{op(2, 2)}, nil, nil),
	} {
		if err == nil {
			t.Errorf("case %d isn't refused", k)
		}
	}
}

// foreachSpecs are kernels of lists, for the compilers' test.
func foreachSpecs() []text.Spec {
	var all []text.Spec
	for _, dt := range types {
		for k, op := range []string{"add", "sqrt", "addcdiv", "copy"} {
			o, _ := ops.Named(op)
			s := text.Spec{Family: ForeachFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: 1, Ins: uint8(o.Ins),
				Wide:  k == 1,
				Extra: [4]int32{int32(o.Numbers), int32(k%2) * listShared, int32(k % 2)}}
			for i := range s.Outs + s.Ins {
				s.Types[i] = dt
			}
			if o.Expression(s.Compute) != "" {
				all = append(all, s)
			}
		}
		if !dt.IsFloating() {
			continue
		}
		for _, op := range []string{"norm2", "norm_inf", "norm"} {
			s := text.Spec{Family: ForeachFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Ins: 1, Form: foreachParts,
				Extra: [4]int32{int32(reductions[reductionNames[op]].Numbers)}}
			s.Types[0] = dt
			join := s
			join.Form, join.Outs, join.Ins = foreachJoin, 1, 0
			all = append(all, s, join)
		}
		for _, op := range slices.Sorted(maps.Keys(listSteps)) {
			o := listSteps[op]
			s := text.Spec{Family: ForeachFamily, Op: op, Compute: text.Opmath(dt), Block: threads, Outs: uint8(o.operands),
				Form: listStep}
			for i := range s.Outs {
				s.Types[i] = dt
			}
			if o.steps {
				s.Extra[1] = listCount | listLR
			}
			if op == "unscale" || dt == dtype.BFloat16 {
				s.Extra[1] |= listScale | listFound
			}
			all = append(all, s)
		}
	}
	update := text.Spec{Family: ForeachFamily, Op: "update_scale", Compute: dtype.Float32, Block: 1, Form: listScaleUpdate,
		Outs: 2, Ins: 1}
	update.Types = [text.MaxOperands]dtype.DType{dtype.Float32, dtype.Int32, dtype.Float32}
	return append(all, update)
}

// The arguments of a run are 1024 bytes at most, also where pointers have offsets.
func TestListArguments(t *testing.T) {
	op := func(dt dtype.DType, sizes ...int) Operand { return Operand{4096, dt, sizes, Dense(sizes...), nil} }
	for _, offsets := range []bool{false, true} {
		p := Plan{Offsets: offsets, Scratch: func(int) (device.Ptr, error) { return 4096, nil }}
		for _, dt := range []dtype.DType{dtype.Float16, dtype.Float64, dtype.Complex128} {
			var x, counts []Operand
			var numbers []*Number
			for range 40 {
				x, counts, numbers = append(x, op(dt, 3)), append(counts, op(dtype.Float32)), append(numbers, Int(1))
			}
			one, f := []Operand{op(dt)}, op(dtype.Float32)
			compute := text.Opmath(dt)
			must(t, p.Foreach("add", compute, [][]Operand{x}, [][]Operand{x, one}, numbers))
			must(t, p.Foreach("addcdiv", compute, [][]Operand{x}, [][]Operand{x, x, x}, numbers))
			must(t, p.Foreach("addcdiv", compute, [][]Operand{x}, [][]Operand{one, one, one}, numbers))
			if dt.IsComplex() {
				continue
			}
			results := make([]Operand, len(x))
			for k := range results {
				results[k] = op(dt)
			}
			must(t, p.ForeachReduce("norm", compute, results, x, Int(2)))
			step := &Step{LRTensor: f, GradScale: f, FoundInf: f, Momentum: 0.5}
			must(t, p.Optimize("sgd", step, x, x, [][]Operand{x}, nil))
			must(t, p.Optimize("adam", step, x, x, [][]Operand{x, x}, counts))
			must(t, p.Optimize("adam", step, x, x, [][]Operand{x, x, x}, counts))
			must(t, p.Unscale(x, f, f))
		}
		runs := map[string]int{}
		for k := range p.Calls {
			c := &p.Calls[k]
			runs[c.Spec.Op]++
			if n := (&device.Properties{Offsets: offsets}).SizeOf(&c.Args); n > 1024 {
				t.Errorf("offsets %v: %v has %d bytes of arguments", offsets, c.Spec, n)
			}
		}
		if want := map[bool]int{false: 2 * 3, true: 2 * 5}[offsets]; runs["adam"] != want {
			t.Errorf("offsets %v: %d runs of adam, want %d", offsets, runs["adam"], want)
		}
	}
}
