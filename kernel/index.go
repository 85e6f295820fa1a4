package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// IndexFamily reads or writes elements at places that tensors of indexes say.
const IndexFamily text.Family = 3

func init() { text.Register(IndexFamily, "index", indexSource) }

// maxIndexes is how many tensors of indexes there are at most.
const maxIndexes = 6

// Index is a dimension in which a tensor of indexes, int64 or int32, says the place. Negative ones count from the end,
// unless they count as out of range.
type Index struct {
	Operand
	Size       int // of the indexed dimension
	Stride     int // in it, in elements
	NoNegative bool
}

// indexUpdates are what a write does to an element, with its old value a and the new one b.
var indexUpdates = map[string][3]string{ // real, bool, complex
	"put": {}, // without the old value
	"add": {"a + b", "a || b", "c_add(a, b)"}, "mul": {"a * b", "a && b", "c_mul(a, b)"},
	"amax": {"isnan(b) ? b : t_max(a, b)", "a || b", ""}, "amin": {"isnan(b) ? b : t_min(a, b)", "a && b", ""},
}

// Take adds reading: out[i] = in[i, with indexes instead of indexed dimensions]. Operand in is the tensor with the
// sizes of out, to which it's broadcast, and without the indexed dimensions: their strides are those of the indexes. An
// index that's out of range gives 0, and sets the 32-bit word at bad to 1 unless that's null.
func (p *Plan) Take(out, in Operand, bad device.Ptr, indexes ...Index) error {
	return p.index("take", out, in, bad, indexes)
}

// Put adds writing: out[i, with indexes] = in[i]. op is put, or one of add, mul, amax and amin. These join the element
// that's there with the new one, and may meet the same element several times, in any order. Operand out has the sizes
// of in, as in of [Plan.Take] has those of out. An index that's out of range writes nothing, and sets the word at bad.
func (p *Plan) Put(op string, out, in Operand, bad device.Ptr, indexes ...Index) error {
	if _, ok := indexUpdates[op]; !ok {
		return fmt.Errorf("kernel: there is no update %q", op)
	}
	return p.index(op, out, in, bad, indexes)
}

func (p *Plan) index(op string, out, in Operand, bad device.Ptr, indexes []Index) error {
	s := text.Spec{Family: IndexFamily, Op: op, Compute: text.Opmath(out.Type), Block: threads, Outs: 1,
		Ins: uint8(1 + len(indexes))}
	s.Types[0], s.Types[1] = out.Type, in.Type
	if len(indexes) == 0 || len(indexes) > maxIndexes {
		return fmt.Errorf("kernel: %s with %d tensors of indexes, of 1 to %d", op, len(indexes), maxIndexes)
	}
	if in.Value != nil {
		s.Values = 1
	} else if in.Type != out.Type {
		return fmt.Errorf("kernel: %s of %v in %v", op, in.Type, out.Type)
	}
	loop := indexLoop(op, &out, &in, indexes)
	if err := p.space.init(loop.Sizes); err != nil {
		return err
	}
	operands := [2]*Operand{&out, &in}
	for k, o := range operands {
		if err := o.check([...]string{"the result", "the input"}[k]); err != nil {
			return err
		}
		if err := p.space.add(o); err != nil {
			return err
		}
	}
	far := out.reach()
	if op == "take" {
		far = in.reach()
	}
	for k := range indexes {
		x := &indexes[k]
		if err := x.check("an index"); err != nil {
			return err
		}
		if x.Type != dtype.Int64 && x.Type != dtype.Int32 || x.Size < 0 {
			return fmt.Errorf("kernel: %s with indexes of %v, in a dimension of %d", op, x.Type, x.Size)
		}
		s.Types[2+k] = x.Type
		if x.NoNegative {
			s.Form |= 1 << k
		}
		if err := p.space.add(&x.Operand); err != nil {
			return err
		}
		far = further(far, x.Size, x.Stride)
		s.Wide = s.Wide || wide(x.reach())
	}
	if indexExpression(op, s.Compute) == "" && op != "take" && op != "put" {
		return fmt.Errorf("kernel: %s of %v isn't defined", op, out.Type)
	}
	if p.space.count == 0 {
		return nil
	}
	p.space.join()
	if p.space.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	s.Dims = uint8(p.space.dims)
	s.Wide = s.Wide || wide(p.space.count, far, out.reach(), in.reach())
	c := p.call(s, p.space.count)
	c.Args.Pointer(out.Ptr)
	if in.Value != nil {
		in.Value.add(&c.Args, s.Compute)
	} else {
		c.Args.Pointer(in.Ptr)
	}
	for k := range indexes {
		c.Args.Pointer(indexes[k].Ptr)
	}
	c.Args.Pointer(bad)
	c.Index(p.space.count)
	if s.Dims > 0 {
		p.space.layout(&c.Args, s.Wide)
	}
	for k := range indexes {
		c.Args.Int64(int64(indexes[k].Size))
		c.Args.Int64(int64(indexes[k].Stride))
	}
	return nil
}

// indexLoop is the operand that has all elements.
func indexLoop(op string, out, in *Operand, indexes []Index) *Operand {
	loop := out
	if op != "take" {
		loop = &indexes[0].Operand
		for k := range indexes {
			if len(indexes[k].Sizes) > len(loop.Sizes) || indexes[k].Count() > loop.Count() {
				loop = &indexes[k].Operand
			}
		}
		if in.Value == nil {
			loop = in
		} else if len(out.Sizes) > len(loop.Sizes) || out.Count() > loop.Count() {
			loop = out
		}
	}
	return loop
}

func indexExpression(op string, compute dtype.DType) string {
	e := indexUpdates[op]
	switch {
	case compute.IsComplex():
		return e[2]
	case compute == dtype.Bool:
		return e[1]
	case !compute.IsFloating() && (op == "amax" || op == "amin"):
		return map[string]string{"amax": "t_max(a, b)", "amin": "t_min(a, b)"}[op]
	}
	return e[0]
}

func indexSource(s text.Spec) (text.Source, error) {
	t, size := s.Types[0], s.Types[0].Size()
	n := int(s.Ins) - 1
	parts := t == dtype.Complex128 && s.Op == "add"
	if size > 8 && !parts && s.Op != "take" && s.Op != "put" {
		return text.Source{}, fmt.Errorf("kernel: %s of %v isn't defined", s.Op, t)
	}
	var w writer
	w.Begin(s)
	w.Defines(s, 2+n)
	if update := indexExpression(s.Op, s.Compute); update != "" {
		w.Define("JOINED", update)
		w.Atomic(size)
	}
	dimensions, indexes := "", ""
	for k := range n {
		dimensions += fmt.Sprintf(", i64 size%d, i64 stride%[1]d", k)
		indexes += fmt.Sprintf("x = i%d[at%d]; ", k+1, k+2)
		if s.Form>>k&1 == 0 {
			indexes += fmt.Sprintf("x += x < 0 ? size%d : 0; ", k)
		}
		indexes += fmt.Sprintf("good = good && x >= 0 && x < size%d; place += x * stride%[1]d; ", k)
	}
	w.Define("DIMENSIONS", dimensions[2:])
	w.Define("INDEXES", indexes)
	w.Define("NOTHING", map[bool]string{true: "make_" + t.Short() + "(0, 0)", false: "0"}[t.IsComplex()])
	w.Define("STORED(x)", text.Converted(s.Compute, t, "x"))
	value := "i0[at1]"
	if s.Values == 1 {
		value = text.Narrowed(t, s.Compute, text.Computed(s.Compute, "i0"))
	}
	w.Define("VALUE", value)
	w.Define("SIZE", size)
	w.Define("PARTS_OF_WORD", max(4, size)/size)
	w.Define(strings.ToUpper(s.Op), "")
	w.DefineIf(parts, "PARTS")
	if add := map[dtype.DType]string{dtype.Float32: "ADD_F32", dtype.Float64: "ADD_F64"}[t]; s.Op == "add" && add != "" {
		w.IfDefined(add, "ADDITION", add)
	}
	return w.File("index", "index_"+s.Op)
}
