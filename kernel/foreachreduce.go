package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ForeachReduce adds one of [Reductions] with one result, which isn't an index, over all elements of each tensor:
// outs[j] has one element, the result of ins[j]. Tensors whose elements lie one after the other, in any order, are many
// in one run. It needs scratch memory.
func (p *Plan) ForeachReduce(op string, compute dtype.DType, outs, ins []Operand, numbers ...*Number) error {
	s := text.Spec{Family: ForeachFamily, Op: op, Compute: compute, Block: threads, Form: foreachParts, Ins: 1,
		Extra: [4]int32{int32(len(numbers))}}
	r, err := foreachReduction(op, compute, len(outs), len(ins), len(numbers))
	if err != nil {
		return err
	}
	l := p.listOf(&s)
	var results [mostSlots]device.Ptr
	var kinds [2]dtype.DType // of the run's results and inputs
	flush := func() error {
		if l.n == 0 {
			return nil
		}
		scratch, err := p.scratch(max(l.blocks(), 1) * accumulator)
		if err != nil {
			return err
		}
		n, counts := l.n, l.counts
		if l.blocks() > 0 {
			c := p.flush(l)
			c.Shape = loader.AnyBlock
			c.Args.Pointer(scratch)
		}
		join := s
		join.Form, join.Outs, join.Ins = foreachJoin, 1, 0
		join.Types = [text.MaxOperands]dtype.DType{kinds[0]}
		l.spec, l.n, l.ptrs[0], l.counts = join, n, results, counts
		p.flush(l).Args.Pointer(scratch)
		l.spec = s
		return nil
	}
	for i := range numbers {
		l.numbers[i][0] = numbers[i]
	}
	for j := range ins {
		in, out := &ins[j], &outs[j]
		if err := out.check("a result"); err != nil {
			return err
		}
		if out.Value != nil || out.Count() != 1 {
			return fmt.Errorf("kernel: foreach %s, tensor %d: a result of sizes %v", op, j, out.Sizes)
		}
		p.one[0] = *in
		dense, err := p.listed(&s, p.one[:1])
		if err != nil {
			return fmt.Errorf("kernel: foreach %s, tensor %d: %w", op, j, err)
		}
		if p.space.count == 0 && r.Needs {
			return fmt.Errorf("kernel: foreach %s, tensor %d: no elements have no result", op, j)
		}
		if !dense {
			p.ones = p.ones[:0]
			for range in.Sizes {
				p.ones = append(p.ones, 1)
			}
			p.one[1] = *out
			p.one[1].Sizes, p.one[1].Strides = p.ones, p.ones
			if err := p.Reduce(op, compute, p.one[1:2], *in, nil, numbers...); err != nil {
				return err
			}
			continue
		}
		if l.n == slotsOf(l.spec) || l.n > 0 && kinds != [2]dtype.DType{out.Type, in.Type} {
			if err := flush(); err != nil {
				return err
			}
		}
		kinds = [2]dtype.DType{out.Type, in.Type}
		l.spec = s
		l.ptrs[0][l.n], results[l.n], l.counts[l.n] = in.Ptr, out.Ptr, p.space.count
		l.n++
	}
	return flush()
}

// foreachReduction is a reduction with one result, which isn't an index.
func foreachReduction(op string, compute dtype.DType, outs, ins, numbers int) (*Reduction, error) {
	k, ok := reductionNames[op]
	switch {
	case !ok:
		return nil, fmt.Errorf("kernel: there is no reduction %q", op)
	case !reductions[k].Defined(compute) || compute.Size() == 2 && compute.IsFloating() || !text.Supported(compute):
		return nil, fmt.Errorf("kernel: %s isn't computed in %v", op, compute)
	case reductions[k].ordered && reductions[k].done[0].kind == index || reductions[k].Results() != 1 ||
		reductions[k].Numbers != numbers:
		return nil, fmt.Errorf("kernel: foreach %s with %d numbers", op, numbers)
	case outs != ins:
		return nil, fmt.Errorf("kernel: foreach %s of %d tensors to %d", op, ins, outs)
	}
	return &reductions[k], nil
}

func (w *writer) foreachReductionText(s text.Spec) error {
	k, ok := reductionNames[s.Op]
	if !ok || !reductions[k].Defined(s.Compute) {
		return fmt.Errorf("kernel: there is no reduction %s of %v for lists", s.Op, s.Compute)
	}
	r, numbers := reductions[k].of(s.Compute), reductions[k].Numbers
	args := w.accumulator(r, numbers, s.Compute)
	w.listParams(s)
	w.Param("GLOBAL A *scratch")
	w.Function("list_" + s.Op + [...]string{foreachParts: "_parts", foreachJoin: "_join"}[s.Form])
	w.Line("\tLOCAL A part[%d];", s.Block)
	w.listPlace(s)
	for k := range numbers {
		w.Line("\tR s%d = (R)number%[1]d;", k)
	}
	w.Define("STEP(a)", fmt.Sprintf("a = r_step(a, %s, i%s);", text.Converted(s.Compute, s.Types[0], "i0[i]"), args))
	w.Define("THREADS_OF_BLOCK", s.Block)
	w.DefineIf(s.Vector, "VECTOR")
	w.DefineIf(s.Form == foreachJoin, "LIST_JOIN")
	w.Include("list_reduce")
	if s.Form == foreachParts {
		return nil
	}
	o := r.done[0]
	w.Line("\to0[0] = %s;", text.Narrowed(s.Types[0], o.kind.dtype(s.Compute), fmt.Sprintf("r_done0(a, l.n[t]%s)", args)))
	return nil
}
