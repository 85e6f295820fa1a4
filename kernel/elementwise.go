package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
	"github.com/chorus-comms/chorus/kernel/user"
)

// ElementwiseFamily computes each element of the results of the elements of the inputs in the same place.
const ElementwiseFamily text.Family = 1

func init() { text.Register(ElementwiseFamily, "elementwise", elementwiseSource) }

// Elementwise adds an operation on single elements: one of [Ops], or a user's function as the JITerator takes it. The
// results have the same sizes, to which the inputs are broadcast. compute is the type that elements are converted to
// and that the result is converted from. numbers are the operation's own, such as alpha of add. Results may be inputs
// if they lie in the same places, and overlap nothing else.
func (p *Plan) Elementwise(op string, compute dtype.DType, outs, ins []Operand, numbers ...*Number) error {
	return p.elementwise(op, compute, outs, ins, nil, numbers)
}

// elementwise adds an operation. Of one that takes integers the expressions have each element's number i, in the order
// of the indexes.
func (p *Plan) elementwise(op string, compute dtype.DType, outs, ins []Operand, integers []int, numbers []*Number) error {
	s := text.Spec{Family: ElementwiseFamily, Op: op, Compute: compute, Block: threads}
	s.Extra[0] = int32(len(integers))
	if len(outs) == 0 || len(outs)+len(ins) > text.MaxOperands || len(ins) > text.MaxInputs {
		return fmt.Errorf("kernel: %s with %d results and %d inputs", s, len(outs), len(ins))
	}
	s.Outs, s.Ins, s.Form = uint8(len(outs)), uint8(len(ins)), uint8(len(numbers))
	far, err := p.elementwiseSpace(&s, outs, ins)
	if err != nil {
		return err
	}
	if err := elementwiseCheck(s); err != nil || p.space.count == 0 {
		return err
	}
	if integers != nil {
		p.space.squeeze()
	} else {
		p.space.join()
	}
	if p.space.dims > text.MaxDims {
		return fmt.Errorf("kernel: %v: %d dimensions that don't join, of at most %d", s, p.space.dims, text.MaxDims)
	}
	s.Wide = wide(p.space.count, far)
	if !p.space.dense(uint32(s.Values) << s.Outs) {
		s.Dims = uint8(p.space.dims)
	}
	work := p.space.count
	if integers == nil && p.space.ops <= mostSteps {
		s.Extra[2] = p.space.transposed(len(outs))
	}
	switch {
	case s.Extra[2] != 0:
		s.Extra[1] = 1 + p.space.steps()
		work = p.space.transposedTiles() * threads
	case s.Dims == 0 && integers == nil && p.Cores == 0:
		s.Extra[3] = packedElements(&s, outs, ins)
		work = (work-1)/max(int(s.Extra[3]), 1) + 1
	case s.Dims > 0 && p.space.sizes[0] >= elementwisePiece/4 && p.space.ops <= mostSteps:
		s.Extra[1] = 1 + p.space.steps()
		work = p.space.count / p.space.sizes[0] * ((p.space.sizes[0] + elementwisePiece - 1) / elementwisePiece) * threads
	}
	c := p.call(s, work)
	c.Shape = loader.AnyGrid
	if !ops.IsSpecial(op) && !text.IsUser(op) {
		c.Elements = p.space.count * weightOf(op, compute)
	}
	for k := range outs {
		c.Args.Pointer(outs[k].Ptr)
	}
	for k := range ins {
		if v := ins[k].Value; v != nil {
			v.add(&c.Args, compute)
		} else {
			c.Args.Pointer(ins[k].Ptr)
		}
	}
	c.Index(p.space.count)
	for k, v := range numbers {
		if text.IsUser(op) {
			typ, truth := user.NumberType(op, len(ins), k, compute)
			n := *v
			if truth && !n.IsInt && n.Float != 0 {
				n.Float = 1
			}
			n.add(&c.Args, typ)
		} else {
			v.add(&c.Args, compute)
		}
	}
	for _, n := range integers {
		c.Args.Int64(int64(n))
	}
	if s.Dims > 0 {
		p.space.layout(&c.Args, s.Wide)
	}
	return nil
}

// elementwiseSpace makes the plan's space that of all operands, and completes the spec. far is how far they reach.
func (p *Plan) elementwiseSpace(s *text.Spec, outs, ins []Operand) (far int, err error) {
	if err := p.space.init(outs[0].Sizes); err != nil {
		return 0, err
	}
	for k := range outs {
		s.Types[k] = outs[k].Type
		if err := outs[k].check("a result"); err != nil {
			return 0, err
		}
		if outs[k].Value != nil || len(outs[k].Sizes) != p.space.dims || outs[k].Count() != p.space.count {
			return 0, fmt.Errorf("kernel: %v: results of sizes %v and %v", *s, outs[0].Sizes, outs[k].Sizes)
		}
		if err := p.space.add(&outs[k]); err != nil {
			return 0, err
		}
		far = max(far, outs[k].reach())
	}
	for k := range ins {
		s.Types[len(outs)+k] = ins[k].Type
		if err := ins[k].check("an input"); err != nil {
			return 0, err
		}
		if ins[k].Value != nil {
			s.Values |= 1 << k
		}
		if err := p.space.add(&ins[k]); err != nil {
			return 0, err
		}
		far = max(far, ins[k].reach())
	}
	return far, nil
}

// elementwisePiece is how many elements of the innermost dimension a block has at a time, if they don't lie one after
// the other in all operands and there are many. Places are then computed once for all of them. Spec.Extra[1] is 1 more
// than [space.steps] of such a kernel, and 0 of others.
const elementwisePiece = 1 << 10

// userCheck refuses a call with other numbers of operands than the text's.
func userCheck(s text.Spec) error {
	inputs, results, err := user.Operands(s.Op)
	if err != nil {
		return err
	}
	if inputs != int(s.Ins+s.Form) || results != int(s.Outs) {
		return fmt.Errorf("kernel: %s takes %d inputs and numbers and has %d results, and the call has %d, %d and %d",
			user.Name(s.Op), inputs, results, s.Ins, s.Form, s.Outs)
	}
	return nil
}

// elementwiseCheck refuses what isn't in the table, and calls that a user's function doesn't take.
func elementwiseCheck(s text.Spec) error {
	if !text.Supported(s.Compute) || s.Compute.Size() == 2 && s.Compute.IsFloating() {
		return fmt.Errorf("kernel: %v can't be computed in %v", s, s.Compute)
	}
	o, ok := ops.Named(s.Op)
	switch {
	case !ok && text.IsUser(s.Op):
		return userCheck(s)
	case !ok:
		return fmt.Errorf("kernel: there is no operation %q", s.Op)
	case o.Ins != int(s.Ins) || o.Numbers != int(s.Form) || o.Integers != int(s.Extra[0]):
		return fmt.Errorf("kernel: %s takes %d inputs and %d numbers, not %d and %d", s.Op, o.Ins, o.Numbers+o.Integers,
			s.Ins, int(s.Form)+int(s.Extra[0]))
	case o.Expression(s.Compute) == "":
		return fmt.Errorf("kernel: %s isn't defined for %v", s.Op, s.Compute)
	case o.Results() != int(s.Outs):
		return fmt.Errorf("kernel: %s has %d results, not %d", s.Op, o.Results(), s.Outs)
	}
	return nil
}

func elementwiseSource(s text.Spec) (text.Source, error) {
	if err := elementwiseCheck(s); err != nil {
		return text.Source{}, err
	}
	var w writer
	w.Begin(s)
	operands := int(s.Outs + s.Ins)
	var call string
	var expressions []string
	var err error
	if o, ok := ops.Named(s.Op); ok {
		ops.Functions(&w.Writer, s.Op)
		expressions = strings.Split(o.Expression(s.Compute), ";")
	} else if call, err = user.Call(&w.Writer, s); err != nil {
		return text.Source{}, err
	}
	w.LayoutType("layout", int(s.Dims), operands)
	w.packTypes(s)
	w.Pointers(s)
	w.Param("I n")
	for k := range int(s.Form) {
		w.Param("%s number%d", text.Number(numberTypeOf(s, k)), k)
	}
	for k := range s.Extra[0] {
		w.Param("i64 n%d", k)
	}
	if s.Dims > 0 {
		w.Param("layout l")
	}
	w.Function("elementwise_" + opName(s.Op))
	for k := range int(s.Form) {
		if numberTypeOf(s, k) == s.Compute {
			w.Line("\tT s%d = %s;", k, text.Computed(s.Compute, fmt.Sprintf("number%d", k)))
		}
	}
	for k := range int(s.Ins) {
		if s.Values>>k&1 == 1 {
			w.Line("\tT %c = %s;", 'a'+k, text.Computed(s.Compute, fmt.Sprintf("i%d", k)))
		}
	}
	w.eachElement(s, operands, func(packed bool) {
		for k, t := range s.Inputs() {
			o := int(s.Outs) + k
			at := fmt.Sprintf("i%d[at%d]", k, o)
			if packed {
				at = fmt.Sprintf("pack%d.e[u]", o)
			}
			if s.Extra[2]>>o&1 == 1 {
				at = fmt.Sprintf("tile%d[j][k]", k)
			}
			if s.Values>>k&1 == 0 {
				w.Line("\tT %c = %s;", 'a'+k, text.Converted(s.Compute, t, at))
			}
		}
		if call != "" {
			w.Line("\t%s", call)
		}
		for k, e := range expressions {
			e = strings.TrimSpace(e)
			if s.Compute.IsComplex() {
				w.Line("\tT r%d = %s;", k, e)
			} else {
				w.Line("\tT r%d = (T)(%s);", k, e)
			}
		}
		for k, t := range s.Results() {
			to := fmt.Sprintf("o%d[at%d]", k, k)
			if packed {
				to = fmt.Sprintf("pack%d.e[u]", k)
			}
			w.Line("\t%s = %s;", to, text.Narrowed(t, s.Compute, fmt.Sprintf("r%d", k)))
		}
	})
	return w.Done()
}

// eachElement writes a block's loop over its elements: element does one, whose places are at0 and so on. Blocks have as
// many each, however many blocks there are.
func (w *writer) eachElement(s text.Spec, operands int, element func(packed bool)) {
	single := func() { element(false) }
	unsigned := "u32"
	if s.Wide {
		unsigned = "u64"
	}
	if s.Extra[3] > 0 && !s.Vector {
		w.eachPack(s, operands, unsigned, element)
		return
	}
	if s.Extra[1] == 0 {
		w.share(unsigned, "THREADS")
		each := func() {
			w.Offsets("i", "l", int(s.Dims), operands)
			single()
		}
		if s.Dims > 0 {
			w.ThreadLoop(s, "i", each)
		} else {
			w.ThreadLoopAhead(s, "i", each)
		}
		return
	}
	if s.Extra[2] != 0 {
		w.eachTransposedTile(s, operands, unsigned, single)
		return
	}
	w.Line("\tI inner = l.sizes[0], pieces = (inner - 1) / %d + 1, units = n / inner * pieces;", elementwisePiece)
	w.eachUnit(unsigned, func() {
		w.Line("\tI row = unit / pieces, from = unit %% pieces * %d, to = inner - from < %[1]d ? inner : from + %[1]d;",
			elementwisePiece)
		w.OffsetsFrom("row", "l", 1, int(s.Dims), operands)
		for o := range operands {
			w.Line("\tI row%d = at%[1]d;", o)
		}
		w.ThreadLoop(s, "j", func() {
			if s.Extra[0] > 0 {
				w.Line("\tI i = row * inner + j;")
			}
			for o := range operands {
				w.Line("\tI at%d = row%[1]d%s;", o, stepOf(s, o))
			}
			single()
		})
	})
}

// share writes the part of n elements that a block has, from one to before another: a multiple of what its threads have
// at a time, but the last.
func (w *writer) share(unsigned, together string) {
	w.Line("\tI each = (I)((%s)(n - 1) / ((%[1]s)BLOCKS * %[2]s) + 1) * %[2]s;", unsigned, together)
	w.Line("\ti64 first = BLOCK * each;")
	w.Line("\tif (first >= n)")
	w.Line("\t\treturn;")
	w.Line("\tI from = (I)first, to = n - from < each ? n : from + each;")
}

// eachUnit writes a loop over a block's units, of which all blocks together have `units`.
func (w *writer) eachUnit(unsigned string, body func()) {
	w.Line("\tI each = (I)((%s)(units - 1) / (%[1]s)BLOCKS) + 1;", unsigned)
	w.Line("\ti64 first = BLOCK * each;")
	w.Line("\tif (first >= units)")
	w.Line("\t\treturn;")
	w.Line("\tI last = units - (I)first < each ? units : (I)first + each;")
	w.Line("\tfor (I unit = (I)first; unit < last; unit++) {")
	body()
	w.Line("\t}")
}

// stepOf is what element j of the innermost dimension adds to an operand's place.
func stepOf(s text.Spec, operand int) string {
	switch (s.Extra[1] - 1) >> (2 * operand) & 3 {
	case stepNone:
		return ""
	case stepOne:
		return " + j"
	}
	return fmt.Sprintf(" + j * l.strides[%d][0]", operand)
}

// mostSteps is of how many operands Spec.Extra[1] has the steps.
const mostSteps = 15

// Steps of an operand in the innermost dimension: 2 bits each.
const (
	stepAny = iota
	stepNone
	stepOne
)

// steps are those of all operands, the first in the lowest bits.
func (p *space) steps() (bits int32) {
	for o := range p.ops {
		switch p.strides[o][0] {
		case 0:
			bits |= stepNone << (2 * o)
		case 1:
			bits |= stepOne << (2 * o)
		}
	}
	return bits
}

func opName(op string) string {
	if text.IsUser(op) {
		return user.Name(op)
	}
	return op
}

// numberTypeOf is the type of the call's number k: that of a user's parameter, or what is computed in.
func numberTypeOf(s text.Spec, k int) dtype.DType {
	if !text.IsUser(s.Op) {
		return s.Compute
	}
	t, _ := user.NumberType(s.Op, int(s.Ins), k, s.Compute)
	return t
}
