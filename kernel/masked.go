package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// MaskedFamily moves the elements for which another tensor, the mask, isn't zero.
//
// Blocks count the elements of their parts of the mask. A scan of the counts says where each block's first one goes.
const MaskedFamily text.Family = 32

func init() { text.Register(MaskedFamily, "masked", maskedSource) }

// The forms of a masked operation.
const (
	maskedCount = iota
	maskedMove
)

// maskedUnit is how many elements of a mask are a thread's.
const maskedUnit = 8

// Nonzero adds writing the indexes of the elements that aren't zero, in the order of the elements. out is int64, a row
// of as many as in has dimensions for each. Rows beyond those found stay as they are, and elements without a row are
// left out. The reduction count_nonzero says how many there are. It needs scratch memory.
func (p *Plan) Nonzero(out, in Operand) error {
	if out.Type != dtype.Int64 || len(out.Sizes) != 2 || out.Sizes[1] != len(in.Sizes) || in.Value != nil {
		return fmt.Errorf("kernel: nonzero of %d dimensions to %v of %v", len(in.Sizes), out.Sizes, out.Type)
	}
	if len(in.Sizes) == 0 {
		return nil
	}
	if len(in.Sizes) > text.MaxDims {
		return fmt.Errorf("kernel: nonzero of %d dimensions, of at most %d", len(in.Sizes), text.MaxDims)
	}
	return p.masked("nonzero", out, in, Operand{}, in.Sizes)
}

// MaskedSelect adds taking the elements of in for which mask, broadcast to its sizes, isn't zero, in their order. out
// has one dimension. Its elements beyond those found stay as they are, and those without a place are left out. It needs
// scratch memory.
func (p *Plan) MaskedSelect(out, in, mask Operand) error {
	if out.Type != in.Type || len(out.Sizes) != 1 || in.Value != nil {
		return fmt.Errorf("kernel: masked_select of %v to %v of %d dimensions", in.Type, out.Type, len(out.Sizes))
	}
	return p.masked("masked_select", out, mask, in, in.Sizes)
}

// MaskedScatter adds replacing the elements of out for which mask, broadcast to its sizes, isn't zero, by the elements
// of in, which has one dimension, one after the other. If in has too few, the rest stays as it is. It needs scratch
// memory.
func (p *Plan) MaskedScatter(out, mask, in Operand) error {
	if out.Type != in.Type || len(in.Sizes) != 1 || out.Value != nil || in.Value != nil {
		return fmt.Errorf("kernel: masked_scatter of %v of %d dimensions to %v", in.Type, len(in.Sizes), out.Type)
	}
	return p.masked("masked_scatter", out, mask, in, out.Sizes)
}

func (p *Plan) masked(op string, out, mask, in Operand, sizes []int) error {
	if mask.Value != nil {
		return fmt.Errorf("kernel: %s with a number as mask", op)
	}
	// line is what's gone through one after the other, all what has the mask's places
	q, line, all := &p.space, &out, &in
	if op == "masked_scatter" {
		line, all = &in, &out
	}
	if err := p.maskedSpace(&out, &mask, &in, all, sizes); err != nil {
		return err
	}
	limit := line.Sizes[0]
	if q.count == 0 || limit == 0 {
		return nil
	}
	q.squeeze()
	if q.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	s := text.Spec{Family: MaskedFamily, Op: op, Compute: text.Opmath(mask.Type), Block: threads, Outs: 1, Ins: 2,
		Form: maskedCount,
		Dims: uint8(q.dims)}
	s.Types = [text.MaxOperands]dtype.DType{out.Type, mask.Type, in.Type}
	step, column := line.Strides[0], 0
	if op == "nonzero" {
		column = line.Strides[1]
		s.Types[2], s.Extra[0] = mask.Type, int32(len(sizes))
	}
	s.Wide = wide(q.count, limit, out.reach(), mask.reach(), in.reach())
	blocks := (q.count + threads*maskedUnit - 1) / (threads * maskedUnit)
	counts, err := p.scratch(blocks * 8)
	if err != nil {
		return err
	}
	ends, err := p.scratch(blocks * 8)
	if err != nil {
		return err
	}
	elements, move := q.count, len(p.Calls)+1
	c := p.blocks(s, device.Dim{X: blocks, Y: 1, Z: 1})
	c.Args.Pointer(counts).Pointer(mask.Ptr)
	c.Index(elements)
	if s.Dims > 0 {
		q.layout(&c.Args, s.Wide)
	}
	c = p.blocks(s, device.Dim{X: blocks, Y: 1, Z: 1}) // its place is after the scan's, which uses the plan's space
	c.Spec.Form = maskedMove
	for _, at := range [...]device.Ptr{ends, mask.Ptr, out.Ptr, in.Ptr} {
		c.Args.Pointer(at)
	}
	for _, v := range [...]int{elements, limit, step, column} {
		c.Index(v)
	}
	if s.Dims > 0 {
		q.layout(&c.Args, s.Wide)
	}
	for _, n := range sizes[:s.Extra[0]] {
		c.Index(n)
	}
	p.length[0] = blocks
	if err := p.Scan("cumsum", dtype.Int64, p.line(0, ends), p.line(1, counts)[0], 0); err != nil {
		return err
	}
	for ; move < len(p.Calls)-1; move++ {
		p.Calls[move], p.Calls[move+1] = p.Calls[move+1], p.Calls[move]
	}
	return nil
}

// maskedSpace makes the plan's space that of the mask and of what has its places, all, or the mask itself.
func (p *Plan) maskedSpace(out, mask, in, all *Operand, sizes []int) error {
	for _, o := range [...]*Operand{out, mask, in} {
		if o.Type == dtype.Invalid {
			all = mask
			continue
		}
		if err := o.check("an operand"); err != nil {
			return err
		}
	}
	if err := p.space.init(sizes); err != nil {
		return err
	}
	for _, o := range [...]*Operand{mask, all} {
		if err := p.space.add(o); err != nil {
			return err
		}
	}
	return nil
}

// line is operand number k of the plan's own, as a list: p.length[0] numbers, int64, one after the other.
func (p *Plan) line(k int, at device.Ptr) []Operand {
	p.one[k] = Operand{Ptr: at, Type: dtype.Int64, Sizes: p.length[:], Strides: unit[:]}
	return p.one[k : k+1]
}

var unit = [1]int{1}

func maskedSource(s text.Spec) (text.Source, error) {
	var w writer
	w.Begin(s)
	w.Defines(s, 2)
	w.Define("UNIT", maskedUnit)
	sizes, indexes := "", ""
	for d := range s.Extra[0] {
		sizes += fmt.Sprintf(", I size%d", d)
		indexes = fmt.Sprintf("o0[to * step + %d * column] = rest %% size%[1]d; rest /= size%[1]d; ", d) + indexes
	}
	w.Define("SIZES", sizes)
	w.Define("INDEXES", indexes)
	w.Define(strings.ToUpper(s.Op), "")
	w.DefineIf(s.Form == maskedCount, "MASKED_COUNT")
	return w.File("masked", s.Op+[...]string{"_count", ""}[s.Form])
}

// Starts adds finding the elements that differ from the one before, and the first: out is bool. Both have one dimension
// and the same size. NaN differs from NaN.
func (p *Plan) Starts(out, in Operand) error {
	if out.Type != dtype.Bool || len(in.Sizes) != 1 || len(out.Sizes) != 1 || out.Sizes[0] != in.Sizes[0] {
		return fmt.Errorf("kernel: the starts of runs of %v to %v of %v", in.Sizes, out.Sizes, out.Type)
	}
	n := in.Sizes[0]
	if n == 0 {
		return nil
	}
	if err := p.Fill(out.Narrow(0, 0, 1), Int(1)); err != nil {
		return err
	}
	return p.Elementwise("ne", text.Opmath(in.Type), []Operand{out.Narrow(0, 1, n)},
		[]Operand{in.Narrow(0, 1, n), in.Narrow(0, 0, n-1)})
}

// Inverse adds writing the number of the run that each element is in, int64. starts is what [Plan.Starts] has found.
// The number of element i goes to place order[i]. order, int64, are the indexes of a sort, or the zero Operand: then it
// goes to place i. Inverse needs scratch memory.
func (p *Plan) Inverse(out, starts, order Operand) error {
	if out.Type != dtype.Int64 || len(out.Sizes) != 1 || len(starts.Sizes) != 1 || out.Sizes[0] != starts.Sizes[0] {
		return fmt.Errorf("kernel: the runs of %v elements to %v of %v", starts.Sizes, out.Sizes, out.Type)
	}
	numbers, err := p.temporary(dtype.Int64, starts.Sizes...)
	if err != nil {
		return err
	}
	if err := p.Scan("cumsum", dtype.Int64, []Operand{numbers}, starts, 0); err != nil {
		return err
	}
	one := []Operand{numbers, {Type: dtype.Int64, Value: Int(1)}}
	if order.Type == dtype.Invalid {
		return p.Elementwise("sub", dtype.Int64, []Operand{out}, one, Int(1))
	}
	if err := p.Elementwise("sub", dtype.Int64, []Operand{numbers}, one, Int(1)); err != nil {
		return err
	}
	to := Operand{Ptr: out.Ptr, Type: out.Type, Sizes: out.Sizes, Strides: []int{0}}
	return p.Put("put", to, numbers, 0, Index{Operand: order, Size: out.Sizes[0], Stride: out.Strides[0]})
}

// Lengths adds writing how many elements each run has, int64. at are the indexes of the starts, one a run, of n
// elements.
func (p *Plan) Lengths(out, at Operand, n int) error {
	if out.Type != dtype.Int64 || len(out.Sizes) != 1 || len(at.Sizes) != 1 || out.Sizes[0] != at.Sizes[0] {
		return fmt.Errorf("kernel: the lengths of runs at %v to %v of %v", at.Sizes, out.Sizes, out.Type)
	}
	runs := at.Sizes[0]
	if runs == 0 {
		return nil
	}
	if err := p.Elementwise("sub", dtype.Int64, []Operand{out.Narrow(0, 0, runs-1)},
		[]Operand{at.Narrow(0, 1, runs), at.Narrow(0, 0, runs-1)}, Int(1)); err != nil {
		return err
	}
	return p.Elementwise("rsub", dtype.Int64, []Operand{out.Narrow(0, runs-1, runs)},
		[]Operand{at.Narrow(0, runs-1, runs), {Type: dtype.Int64, Value: Int(int64(n))}}, Int(1))
}
