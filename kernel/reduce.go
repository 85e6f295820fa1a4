package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ReduceFamily computes each element of the results of many elements of the input.
const ReduceFamily text.Family = 2

func init() { text.Register(ReduceFamily, "reduce", reduceSource) }

// The forms of a reduction, by what reduces the elements of one result.
const (
	reduceThread  = iota // a thread
	reduceBlock          // a block
	reduceParts          // several blocks, each of which leaves an accumulator
	reduceJoin           // a block, of those accumulators
	reduceColumns        // a lane of a processor's vector: see [Plan.reducedColumns]
)

// Limits between the forms, in elements.
const (
	fewElements    = 32      // reduced by a thread
	manyResults    = 1 << 14 // are enough threads, if neighbours read neighbours
	elementsOfPart = 1 << 14 // of a block, where several reduce
	mostParts      = 256
	enoughBlocks   = 64
	accumulator    = 32 // bytes of one at most
)

// Reduce adds one of [Reductions] over dimensions of the input; nil stands for all. The results have the input's number
// of dimensions, with size 1 in those that are reduced. Elements are converted to the type compute, and the results from
// it; indexes are int64. The numbers are the reduction's own, such as the correction of var.
func (p *Plan) Reduce(op string, compute dtype.DType, outs []Operand, in Operand, dims []int, numbers ...*Number) error {
	s := text.Spec{Family: ReduceFamily, Op: op, Compute: compute, Block: threads, Outs: uint8(len(outs)), Ins: 1}
	k, ok := reductionNames[op]
	switch {
	case !ok:
		return fmt.Errorf("kernel: there is no reduction %q", op)
	case !reductions[k].Defined(compute) || compute.Size() == 2 && compute.IsFloating() || !text.Supported(compute):
		return fmt.Errorf("kernel: %s isn't computed in %v", op, compute)
	case len(outs) != reductions[k].Results() || len(numbers) != reductions[k].Numbers:
		return fmt.Errorf("kernel: %s has %d results and %d numbers, not %d and %d", op, reductions[k].Results(),
			reductions[k].Numbers, len(outs), len(numbers))
	}
	r := &reductions[k]
	if err := in.check("the input"); err != nil {
		return err
	}
	if in.Value != nil || len(in.Sizes) > maxRank {
		return fmt.Errorf("kernel: %s of a number, or of %d dimensions", op, len(in.Sizes))
	}
	for i := range outs {
		s.Types[i] = outs[i].Type
		if err := outs[i].check("a result"); err != nil {
			return err
		}
		if len(outs[i].Sizes) != len(in.Sizes) {
			return fmt.Errorf("kernel: %s: a result of %d dimensions, and an input of %d", op, len(outs[i].Sizes), len(in.Sizes))
		}
	}
	s.Types[len(outs)] = in.Type
	keep, away := &p.space, &p.reduced
	if err := p.reducedSpaces(op, outs, &in, dims); err != nil {
		return err
	}
	if keep.count == 0 {
		return nil
	}
	if away.count == 0 && r.Needs {
		return fmt.Errorf("kernel: %s of no elements has no result", op)
	}
	keep.join()
	if r.ordered {
		away.squeeze()
	} else {
		away.join()
	}
	if keep.dims > text.MaxDims || away.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	s.Dims, s.Extra[0] = uint8(keep.dims), int32(away.dims)
	if away.dims > 0 && away.strides[0][0] == 1 {
		switch {
		case away.dims == 1:
			s.Extra[1] = 1 // the reduced elements lie one after the other
		case away.sizes[0] >= fewElements:
			s.Extra[1] = 2 // many of them do
		}
	}
	s.Wide = wide(keep.count, away.count, in.reach())
	for i := range outs {
		s.Wide = s.Wide || wide(outs[i].reach())
	}
	return p.reduce(s, numbers, outs, &in)
}

// reducedSpaces fills the plan's spaces: of the dimensions that stay, and of the reduced ones.
func (p *Plan) reducedSpaces(op string, outs []Operand, in *Operand, dims []int) error {
	var gone [maxRank]bool
	for _, d := range dims {
		if d < 0 || d >= len(in.Sizes) || gone[d] {
			return fmt.Errorf("kernel: %s over dimensions %v of %d", op, dims, len(in.Sizes))
		}
		gone[d] = true
	}
	keep, away := &p.space, &p.reduced
	*keep, *away = space{count: 1, ops: len(outs) + 1}, space{count: 1, ops: 1}
	for d := len(in.Sizes) - 1; d >= 0; d-- {
		if dims == nil || gone[d] {
			away.dim(in.Sizes[d], in.Strides[d])
			for i := range outs {
				if outs[i].Sizes[d] != 1 {
					return fmt.Errorf("kernel: %s: a result has %d elements in the reduced dimension %d", op, outs[i].Sizes[d], d)
				}
			}
			continue
		}
		var strides [text.MaxOperands]int
		for i := range outs {
			if outs[i].Sizes[d] != in.Sizes[d] {
				return fmt.Errorf("kernel: %s: a result of sizes %v of an input of %v", op, outs[i].Sizes, in.Sizes)
			}
			strides[i] = outs[i].Strides[d]
		}
		strides[len(outs)] = in.Strides[d]
		keep.dim(in.Sizes[d], strides[:len(outs)+1]...)
	}
	return nil
}

func (p *Plan) reduce(s text.Spec, numbers []*Number, outs []Operand, in *Operand) error {
	keep, away := &p.space, &p.reduced
	args := func(c *loader.Call, parts int, scratch device.Ptr) {
		c.Elements = keep.count * max(away.count, 1) * weightOf(s.Op, s.Compute)
		for i := range outs {
			c.Args.Pointer(outs[i].Ptr)
		}
		c.Args.Pointer(in.Ptr)
		c.Index(keep.count)
		c.Index(away.count)
		if hasScratch(c.Spec) {
			c.Args.Pointer(scratch)
			c.Index(parts)
		}
		for _, v := range numbers {
			v.add(&c.Args, text.Real(s.Compute))
		}
		if keep.dims > 0 {
			keep.layout(&c.Args, s.Wide)
		}
		if away.dims > 0 {
			away.layout(&c.Args, s.Wide)
		}
	}
	near := keep.dims > 0 && keep.strides[len(outs)][0] == 1 // neighbouring results read neighbours
	switch {
	case p.Cores > 0 && near && away.count > fewElements:
		return p.reducedColumns(s, args)
	case away.count <= fewElements, near && keep.count >= manyResults:
		s.Form = reduceThread
		args(p.call(s, keep.count), 0, 0)
		return nil
	case keep.count >= enoughBlocks, away.count < 2*elementsOfPart:
		s.Form = reduceBlock
		args(p.sharing(s, keep.count, away.count), 0, 0)
		return nil
	}
	parts := min(mostParts, (away.count+elementsOfPart-1)/elementsOfPart)
	scratch, err := p.scratch(keep.count * parts * accumulator)
	if err != nil {
		return err
	}
	s.Form = reduceParts
	c := p.blocks(s, device.Dim{X: keep.count * parts, Y: 1, Z: 1})
	c.Shape = loader.AnyBlock
	args(c, parts, scratch)
	s.Form = reduceJoin
	c = p.blocks(s, device.Dim{X: keep.count, Y: 1, Z: 1})
	c.Shape = loader.AnyBlock
	args(c, parts, scratch)
	return nil
}

// dim adds a dimension, outside of those that there are.
func (p *space) dim(size int, strides ...int) {
	p.sizes[p.dims] = size
	p.count *= size
	for o, s := range strides {
		p.strides[o][p.dims] = s
	}
	p.dims++
}

// squeeze joins dimensions and keeps their order.
func (p *space) squeeze() {
	n := 0
	for k := range p.dims {
		if p.sizes[k] != 1 {
			p.move(n, k)
			n++
		}
	}
	p.dims = n
	p.merge()
}

func reduceSource(s text.Spec) (text.Source, error) {
	k, ok := reductionNames[s.Op]
	if !ok || !reductions[k].Defined(s.Compute) {
		return text.Source{}, fmt.Errorf("kernel: there is no reduction %s of %v", s.Op, s.Compute)
	}
	r, numbers := reductions[k].of(s.Compute), reductions[k].Numbers
	outs, away := int(s.Outs), int(s.Extra[0])
	var w writer
	w.Begin(s)
	args := w.accumulator(r, numbers, s.Compute)
	w.reduceHead(s, numbers)
	if s.Form == reduceColumns {
		w.reducedColumns(s, r, away, args)
		return w.Done()
	}
	batch := s.Form == reduceBlock && s.Vector
	w.reduceBounds(s, batch)
	element := func(a, in, i string) {
		w.Line("\t\t%s = r_step(%[1]s, %s, %s%s);", a, text.Converted(s.Compute, s.Inputs()[0], fmt.Sprintf("i0[at%d + %s]",
			outs, in)),
			i, args)
	}
	step := func(a string) {
		switch {
		case s.Form == reduceJoin:
			w.Line("\t\t%s = r_join(%[1]s, scratch[result * parts + i]);", a)
		case s.Extra[1] == 1:
			element(a, "i", "i")
		default:
			w.Line("\t\tI in;")
			w.inner("i", away)
			element(a, "in", "i")
		}
	}
	vectors := func() {
		if s.Form != reduceJoin && s.Extra[1] == 2 {
			w.stretches(s, away, element)
			return
		}
		w.Line("\tA %s = r_init();", strings.Join(accumulators[:], " = r_init(), "))
		w.Line("\tI at = from;")
		w.accumulate(s, "i", step)
		w.joinAccumulators()
	}
	results := func() {
		for k, o := range r.done {
			w.Line("\to%d[at%d] = %s;", k, k,
				text.Narrowed(s.Types[k], o.kind.dtype(s.Compute), fmt.Sprintf("r_done%d(a, n%s)", k, args)))
		}
	}
	if batch {
		w.reducedRows(s, outs, vectors, results)
		return w.Done()
	}
	w.Offsets("result", "l", int(s.Dims), outs+1)
	if s.Form == reduceThread || !s.Vector {
		if s.Form != reduceThread {
			w.Line("\tfrom += THREAD;")
			w.Line("\tstep = THREADS;")
		}
		w.Line("\tA a = r_init();")
		w.Line("\tfor (I i = from; i < to; i += step) {")
		step("a")
		w.Line("\t}")
	} else {
		vectors()
	}
	if s.Form != reduceThread {
		w.joinBlock(s)
		w.Line("\tif (THREAD != 0)")
		w.Line("\t\treturn;")
		w.Line("\ta = part[0];")
	}
	if s.Form == reduceParts {
		w.Line("\tscratch[BLOCK] = a;")
		return w.Done()
	}
	results()
	return w.Done()
}

// reduceBounds writes which result a thread or a block reduces, and the elements of that from `from` to before `to`.
func (w *writer) reduceBounds(s text.Spec, batch bool) {
	switch {
	case batch:
		w.Line("\tLOCAL A part[%d];", mostRows*int(s.Block))
	case s.Form != reduceThread:
		w.Line("\tLOCAL A part[%d];", s.Block)
	}
	w.Line("\tI from = 0, to = n, step = 1;")
	switch {
	case batch:
	case s.Form == reduceThread:
		w.Line("\tI result = (I)(BLOCK * THREADS + THREAD);")
		w.Line("\tif (result >= results)")
		w.Line("\t\treturn;")
	case s.Form == reduceBlock:
		w.Line("\tI result = (I)BLOCK;")
	case s.Form == reduceJoin:
		w.Line("\tI result = (I)BLOCK;")
		w.Line("\tto = parts;")
	case s.Form == reduceParts:
		w.Line("\tI result = (I)(BLOCK / parts), chunk = (n - 1) / parts + 1;")
		w.Line("\tfrom = (I)(BLOCK %% parts) * chunk;")
		w.Line("\tto = n - from < chunk ? n : from + chunk;")
	}
}

// reduceHead writes the head of a reduction's kernel.
func (w *writer) reduceHead(s text.Spec, numbers int) {
	outs, away := int(s.Outs), int(s.Extra[0])
	w.LayoutType("kept", int(s.Dims), outs+1)
	w.LayoutType("reduced", away, 1)
	w.Pointers(s)
	w.Param("I results")
	w.Param("I n")
	if hasScratch(s) {
		w.Param("GLOBAL A *scratch")
		w.Param("I parts")
	}
	for k := range numbers {
		w.Param("R s%d", k)
	}
	if s.Dims > 0 {
		w.Param("kept l")
	}
	if away > 0 {
		w.Param("reduced m")
	}
	w.Function("reduce_" + s.Op + [...]string{"_threads", "_blocks", "_parts", "_join", "_columns"}[s.Form])
}

// reducedRows writes a processor's reduction of the elements of one result after the other. Then each lane joins what
// the lanes have of a result. vectors writes the accumulator a of the elements of one, and results what comes of it.
func (w *writer) reducedRows(s text.Spec, outs int, vectors, results func()) {
	lanes := int(s.Block)
	w.eachBatch("results", mostRows, func() {
		w.Line("\tfor (I r = 0; r < count; r++) {")
		w.Line("\tI result = first + r;")
		w.Offsets("result", "l", int(s.Dims), outs+1)
		vectors()
		w.Line("\tpart[r * %d + THREAD] = a;", lanes)
		w.Line("\t}")
		w.Line("\tBARRIER();")
		w.Line("\tif (THREAD < count) {")
		w.Line("\tI result = first + THREAD;")
		w.Offsets("result", "l", int(s.Dims), outs+1)
		w.Line("\tA a = part[THREAD * %d];", lanes)
		w.Line("\tfor (int k = 1; k < %d; k++)", lanes)
		w.Line("\t\ta = r_join(a, part[THREAD * %d + k]);", lanes)
		results()
		w.Line("\t}")
		w.Line("\tBARRIER();")
	})
}

// joinBlock joins the accumulators of a block's threads in the first part.
func (w *writer) joinBlock(s text.Spec) {
	w.Line("\tpart[THREAD] = a;")
	w.Line("\tBARRIER();")
	if s.Vector {
		w.Line("\tif (THREAD == 0) {")
		w.Line("\t\tfor (int k = %d; k > 0; k /= 2)", s.Block/2)
		w.Line("\t\t\tfor (int j = 0; j < k; j++)")
		w.Line("\t\t\t\tpart[j] = r_join(part[j], part[j + k]);")
		w.Line("\t}")
		return
	}
	w.Line("\tfor (int k = THREADS / 2; k > 0; k /= 2) {")
	w.Line("\t\tif (THREAD < k)")
	w.Line("\t\t\tpart[THREAD] = r_join(part[THREAD], part[THREAD + k]);")
	w.Line("\t\tBARRIER();")
	w.Line("\t}")
}

// accumulators are a thread's in the lanes of a vector: the next element doesn't wait for the one before it.
var accumulators = [...]string{"a", "a1", "a2", "a3"}

// accumulate writes steps of a block's accumulators for the numbers i from `at` to before `to`.
func (w *writer) accumulate(s text.Spec, i string, step func(a string)) {
	w.Vectors(s, i, len(accumulators), func(k int) { step(accumulators[k]) })
	w.Vectors(s, i, 1, func(int) { step("a") })
	w.Rest(s, i, func() { step("a") })
}

func (w *writer) joinAccumulators() { w.Line("\ta = r_join(r_join(a, a1), r_join(a2, a3));") }

// inner writes the place `in` of number i of the reduced elements.
func (w *writer) inner(i string, away int) {
	w.Line("\t\t{")
	w.Offsets(i, "m", away, 1)
	w.Line("\t\tin = at0;")
	w.Line("\t\t}")
}

// stretches writes steps for the reduced elements from `from` to before `to`, of which those of the innermost dimension
// lie one after the other.
func (w *writer) stretches(s text.Spec, away int, element func(a, in, i string)) {
	w.Line("\tA %s = r_init();", strings.Join(accumulators[:], " = r_init(), "))
	w.Line("\tI size = m.sizes[0], last = to;")
	w.Line("\tfor (I start = from, length; start < last; start += length) {")
	w.Line("\tI row = start / size, at = start - row * size, in;")
	w.Line("\tlength = size - at < last - start ? size - at : last - start;")
	w.Line("\tI to = at + length;")
	w.Line("\t{")
	w.OffsetsFrom("row", "m", 1, away, 1)
	w.Line("\tin = at0;")
	w.Line("\t}")
	w.accumulate(s, "j", func(a string) { element(a, "in + j", "row * size + j") })
	w.Line("\t}")
	w.joinAccumulators()
}

// accumulator writes a reduction's type A and functions: r_init, r_step, r_join, and r_done0 and so on of its results.
// It returns what the call's numbers add to their arguments.
func (w *writer) accumulator(r *Reduction, numbers int, compute dtype.DType) (args string) {
	w.Line("typedef struct { %s } A;", r.fields)
	if r.helper != "" {
		w.Line("%s", r.helper)
	}
	params := ""
	for k := range numbers {
		params += fmt.Sprintf(", R s%d", k)
		args += fmt.Sprintf(", s%d", k)
	}
	w.Line("DEVICE A r_init() { A a; %s return a; }", r.init)
	w.Line("DEVICE A r_join(A a, A b) { %s return a; }", r.join)
	w.Line("DEVICE A r_step(A a, T x, i64 i%s) { %s return a; }", params, r.step)
	for k, o := range r.done {
		w.Line("DEVICE %s r_done%d(A a, i64 n%s) { return %s; }", text.Stored(o.kind.dtype(compute)), k, params, o.expr)
	}
	return args
}
