package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// IndexFamily reads or writes elements at places that tensors of indexes say.
const IndexFamily Family = 3

func init() { register(IndexFamily, "index", indexSource) }

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
	s := Spec{Family: IndexFamily, Op: op, Compute: Opmath(out.Type), Block: threads, Outs: 1,
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
	loop := &out // has all elements
	if op != "take" {
		loop = &indexes[0].Operand
		for k := range indexes {
			if len(indexes[k].Sizes) > len(loop.Sizes) || indexes[k].Count() > loop.Count() {
				loop = &indexes[k].Operand
			}
		}
		if in.Value == nil {
			loop = &in
		} else if len(out.Sizes) > len(loop.Sizes) || out.Count() > loop.Count() {
			loop = &out
		}
	}
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
	if p.space.dims > MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, MaxDims)
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
	c.index(p.space.count)
	if s.Dims > 0 {
		p.space.layout(&c.Args, s.Wide)
	}
	for k := range indexes {
		c.Args.Int64(int64(indexes[k].Size))
		c.Args.Int64(int64(indexes[k].Stride))
	}
	return nil
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

func indexSource(s Spec) (Source, error) {
	t, size := s.Types[0], s.Types[0].Size()
	n := int(s.Ins) - 1
	var w writer
	w.begin(s)
	update := indexExpression(s.Op, s.Compute)
	if update != "" {
		w.line("DEVICE T x_join(T a, T b) { return %s; }", update)
		w.src.Atomic64 = size >= 8
	}
	w.layoutType("layout", int(s.Dims), 2+n)
	w.pointers(s)
	w.param("GLOBAL i32 *bad")
	w.param("I n")
	if s.Dims > 0 {
		w.param("layout l")
	}
	for k := range n {
		w.param("i64 size%d, i64 stride%d", k, k)
	}
	w.function("index_" + s.Op)
	w.line("\tI i = (I)(BLOCK * THREADS + THREAD);")
	w.line("\tif (i >= n)")
	w.line("\t\treturn;")
	w.places("i", "l", int(s.Dims), 2+n)
	w.line("\ti64 place = 0, x;")
	w.line("\tint good = 1;")
	for k := range n {
		w.line("\tx = i%d[at%d];", k+1, k+2)
		if s.Form>>k&1 == 0 {
			w.line("\tx += x < 0 ? size%d : 0;", k)
		}
		w.line("\tgood = good && x >= 0 && x < size%d;", k)
		w.line("\tplace += x * stride%d;", k)
	}
	w.line("\tif (!good) {")
	w.line("\t\tif (bad)")
	w.line("\t\t\t*bad = 1;")
	if s.Op == "take" {
		zero := "0"
		if t.IsComplex() {
			zero = "make_" + t.Short() + "(0, 0)"
		}
		w.line("\t\to0[at0] = %s;", zero)
	}
	w.line("\t\treturn;")
	w.line("\t}")
	value := "i0[at1]"
	if s.Values == 1 {
		value = narrowed(t, s.Compute, computed(s.Compute, "i0"))
	}
	switch {
	case s.Op == "take":
		w.line("\to0[at0] = i0[at1 + place];")
	case s.Op == "put":
		w.line("\to0[at0 + place] = %s;", value)
	case t == dtype.Complex128 && s.Op == "add": // parts one after the other
		w.line("\tT b = %s;", value)
		w.line("\tGLOBAL u64 *word = (GLOBAL u64 *)&o0[at0 + place];")
		w.line("\tfor (int k = 0; k < 2; k++) {")
		w.line("\t\tu64 old = word[k], seen;")
		w.line("\t\tfor (;;) {")
		w.line("\t\t\tseen = swap_u64(&word[k], old, f64_bits(bits_f64(old) + (k == 0 ? b.re : b.im)));")
		w.line("\t\t\tif (seen == old)")
		w.line("\t\t\t\tbreak;")
		w.line("\t\t\told = seen;")
		w.line("\t\t}")
		w.line("\t}")
	case size > 8:
		return Source{}, fmt.Errorf("kernel: %s of %v isn't defined", s.Op, t)
	default:
		word := "u32"
		if size == 8 {
			word = "u64"
		}
		// The element is changed in the aligned word that it's part of, until no other thread has changed that meanwhile.
		w.line("\ttypedef union { %s word; %s part[%d]; } whole;", word, stored(t), max(4, size)/size)
		w.line("\tT b = %s;", converted(s.Compute, t, value))
		part := "0"
		if size < 4 {
			w.line("\tGLOBAL u8 *address = (GLOBAL u8 *)&o0[at0 + place];")
			w.line("\tint part = (int)((u64)address %% 4) / %d;", size)
			w.line("\tGLOBAL u32 *word = (GLOBAL u32 *)(address - (u64)address %% 4);")
			part = "part"
		} else {
			w.line("\tGLOBAL %s *word = (GLOBAL %s *)&o0[at0 + place];", word, word)
		}
		w.line("\twhole old, new_, seen;")
		w.line("\told.word = *word;")
		w.line("\tfor (;;) {")
		w.line("\t\tnew_ = old;")
		joined := fmt.Sprintf("x_join(%s, b)", converted(s.Compute, t, "old.part["+part+"]"))
		w.line("\t\tT joined = %s;", joined)
		w.line("\t\tnew_.part[%s] = %s;", part, narrowed(t, s.Compute, "joined"))
		w.line("\t\tseen.word = swap_%s(word, old.word, new_.word);", word)
		w.line("\t\tif (seen.word == old.word)")
		w.line("\t\t\tbreak;")
		w.line("\t\told = seen;")
		w.line("\t}")
	}
	return w.done()
}
