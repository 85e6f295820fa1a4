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
	reduceColumns        // a lane of a processor's vector, or a GPU's threads: see [Plan.reducedColumns]
	reduceGroup          // neighbours of a GPU's block: see [Plan.groupOf]
)

// Limits between the forms, in elements.
const (
	fewElements    = 32      // reduced by a thread
	manyResults    = 1 << 14 // are enough threads, if neighbours read neighbours
	manyThreads    = 1 << 17 // are enough for all of a GPU's multiprocessors, and
	blocksOfGPU    = 1 << 10 // so many blocks
	leastOfPart    = 1 << 12 // of a GPU's block, where several have parts of a result
	elementsOfPart = 1 << 14 // of a processor's
	mostParts      = 256
	enoughBlocks   = 64
	threadsOfGroup = 32
	threadsOfFew   = 8 // likewise of few elements
	bytesOfLoad    = 16
	accumulator    = 40 // bytes of one at most
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
	parts, group := p.partsOf(keep.count, away.count), p.groupOf(keep.count, away.count, s.Extra[1] == 1)
	switch {
	case near && away.count > fewElements && (p.Cores > 0 || keep.count < manyThreads):
		return p.reducedColumns(s, args)
	case near || away.count <= fewElements && group == 0:
		s.Form = reduceThread
		args(p.call(s, keep.count), 0, 0)
	case group > 0:
		s.Form, s.Extra[3] = reduceGroup, int32(group)
		args(p.groups(s, keep.count, group), 0, 0)
	case parts == 1:
		s.Form = reduceBlock
		args(p.sharing(s, keep.count, away.count), 0, 0)
	default:
		scratch, err := p.scratch(keep.count * parts * accumulator)
		if err != nil {
			return err
		}
		s.Form = reduceParts
		c := p.blocks(s, device.Dim{X: keep.count * parts, Y: 1, Z: 1})
		c.Shape = loader.AnyBlock
		args(c, parts, scratch)
		p.joined(s, args, parts, scratch)
	}
	return nil
}

// joined adds joining the accumulators of parts.
func (p *Plan) joined(s text.Spec, args func(c *loader.Call, parts int, scratch device.Ptr), parts int,
	scratch device.Ptr) {
	s.Form = reduceJoin
	c := p.blocks(s, device.Dim{X: p.space.count, Y: 1, Z: 1})
	c.Shape = loader.AnyBlock
	args(c, parts, scratch)
}

// groupOf is how many neighbouring threads of a GPU's block have a row of n elements, so that they read neighbours; 0: a
// thread has the row, or a block. Rows of medium size are a group's if there are so many of them that all of a GPU's
// multiprocessors have work.
func (p *Plan) groupOf(rows, n int, neighbours bool) int {
	switch {
	case p.Cores > 0 || n <= threadsOfFew:
	case n <= fewElements && neighbours:
		return threadsOfFew
	case n > fewElements && (n <= shortRow || n <= mediumRow && rows*threadsOfGroup >= manyThreads):
		return threadsOfGroup
	}
	return 0
}

// groups adds a run whose rows have a group of so many neighbouring threads each.
func (p *Plan) groups(s text.Spec, rows, group int) *loader.Call {
	c := p.call(s, rows*group)
	c.Shape = loader.AnyThreads
	return c
}

// partsOf is how many blocks share each of so many rows of n elements.
func (p *Plan) partsOf(rows, n int) int {
	switch {
	case p.Cores == 0:
		return max(1, min(n/leastOfPart, blocksOfGPU/rows))
	case rows >= enoughBlocks, n < 2*elementsOfPart:
		return 1
	}
	return min(mostParts, (n+elementsOfPart-1)/elementsOfPart)
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
	r, numbers, outs, away := reductions[k].of(s.Compute), reductions[k].Numbers, int(s.Outs), int(s.Extra[0])
	form := [...]string{"threads", "blocks", "parts", "join", "columns", "groups"}[s.Form]
	var w writer
	w.Begin(s)
	args := w.accumulator(r, numbers, s.Compute)
	w.LayoutType("reduced", away, 1)
	w.Defines(s, outs+1)
	w.Define("FIRST", fmt.Sprintf("at%d", outs))
	w.Define("GIVEN", args)
	w.Define("NUMBERS", strings.ReplaceAll(args, "s", "R s"))
	w.Define("REDUCED", map[bool]string{true: ", reduced m"}[away > 0])
	w.Define("SCRATCH", map[bool]string{true: ", GLOBAL A *scratch, I parts"}[hasScratch(s)])
	w.Define("OFFSET_OF_INPUT(i)", "I in; { "+text.Offsets("i", "m", 0, away, 1)+" in = at0; }")
	place := ""
	if s.Form == reduceColumns {
		place = " + (column + lane + THREAD) * l.strides[%[1]d][0]"
		w.Define("OFFSETS_OF_ROW(row)", text.Offsets("row", "l", 1, int(s.Dims), outs+1))
		w.Define("LANES", loader.Lanes)
		w.Define("ROWS_OF_SUM", rowsOfSum)
		w.Define("COLUMNS", s.Extra[3])
		w.DefineIf(hasScratch(s), "SCRATCH_OF_COLUMNS")
	}
	results := ""
	for k, o := range r.done {
		results += fmt.Sprintf("o%d[at%[1]d"+place+"] = %[2]s; ", k,
			text.Narrowed(s.Types[k], o.kind.dtype(s.Compute), fmt.Sprintf("r_done%d(a, n%s)", k, args)))
	}
	w.Define("RESULTS(a, lane)", results)
	w.Define("REDUCE_"+strings.ToUpper(form), "")
	if s.Extra[1] == 1 {
		w.Define("NEIGHBOURS", "")
	}
	if s.Vector {
		w.Define("VECTOR", "")
		if s.Form == reduceBlock || s.Form == reduceGroup {
			w.Define("REDUCE_BATCH", "")
			w.Define("MOST_ROWS", min(mostRows, s.Block)) // since each lane joins one
			w.Include("batch")
		}
		if s.Extra[1] == 2 && s.Form != reduceJoin {
			w.Define("STRETCHES", "")
			w.Define("OFFSET_OF_STRETCH(row)", text.Offsets("row", "m", 1, away, 1))
		}
	}
	if size := s.Inputs()[0].Size(); !s.Vector && s.Extra[1] == 1 && size < bytesOfLoad && s.Form != reduceThread {
		w.Define("LOADS", bytesOfLoad/size)
	}
	if s.Form == reduceGroup {
		w.Define("GROUP", s.Extra[3])
	}
	return w.File("reduce", "reduce_"+s.Op+"_"+form)
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
