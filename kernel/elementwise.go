package kernel

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
)

// ElementwiseFamily computes each element of the results of the elements of the inputs in the same place.
const ElementwiseFamily Family = 1

func init() { register(ElementwiseFamily, "elementwise", elementwiseSource) }

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
	s := Spec{Family: ElementwiseFamily, Op: op, Compute: compute, Block: threads}
	s.Extra[0] = int32(len(integers))
	if len(outs) == 0 || len(outs)+len(ins) > MaxOperands || len(ins) > MaxInputs {
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
	if p.space.dims > MaxDims {
		return fmt.Errorf("kernel: %v: %d dimensions that don't join, of at most %d", s, p.space.dims, MaxDims)
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
	case s.Dims > 0 && p.space.sizes[0] >= elementwisePiece/4 && p.space.ops <= mostSteps:
		s.Extra[1] = 1 + p.space.steps()
		work = p.space.count / p.space.sizes[0] * ((p.space.sizes[0] + elementwisePiece - 1) / elementwisePiece) * threads
	}
	c := p.call(s, work)
	c.shape = anyGrid
	if _, special := specialFiles[op]; !special && !IsUser(op) {
		c.elements = p.space.count * weightOf(op, compute)
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
	c.index(p.space.count)
	for k, v := range numbers {
		if IsUser(op) {
			typ, n := userNumber(op, len(ins), k, compute, *v)
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
func (p *Plan) elementwiseSpace(s *Spec, outs, ins []Operand) (far int, err error) {
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

// elementwiseCheck refuses what isn't in the table, and calls that a user's function doesn't take.
func elementwiseCheck(s Spec) error {
	if !Supported(s.Compute) || s.Compute.Size() == 2 && s.Compute.IsFloating() {
		return fmt.Errorf("kernel: %v can't be computed in %v", s, s.Compute)
	}
	if IsUser(s.Op) {
		return userCheck(s)
	}
	o, ok := OpNamed(s.Op)
	switch {
	case !ok:
		return fmt.Errorf("kernel: there is no operation %q", s.Op)
	case o.Ins != int(s.Ins) || o.Numbers != int(s.Form) || o.Integers != int(s.Extra[0]):
		return fmt.Errorf("kernel: %s takes %d inputs and %d numbers, not %d and %d", s.Op, o.Ins, o.Numbers+o.Integers,
			s.Ins, int(s.Form)+int(s.Extra[0]))
	case o.expression(s.Compute) == "":
		return fmt.Errorf("kernel: %s isn't defined for %v", s.Op, s.Compute)
	case o.results() != int(s.Outs):
		return fmt.Errorf("kernel: %s has %d results, not %d", s.Op, o.results(), s.Outs)
	}
	return nil
}

// results is how many the operation has.
func (o *Op) results() int {
	return max(strings.Count(o.Float, ";"), strings.Count(o.Int, ";")) + 1
}

func elementwiseSource(s Spec) (Source, error) {
	if err := elementwiseCheck(s); err != nil {
		return Source{}, err
	}
	var w writer
	w.begin(s)
	operands := int(s.Outs + s.Ins)
	var call string
	var expressions []string
	if IsUser(s.Op) {
		var err error
		if call, err = userCall(&w, s); err != nil {
			return Source{}, err
		}
	} else {
		o, _ := OpNamed(s.Op)
		w.special(s.Op)
		w.float8(s.Op)
		expressions = strings.Split(o.expression(s.Compute), ";")
	}
	w.layoutType("layout", int(s.Dims), operands)
	w.pointers(s)
	w.param("I n")
	for k := range int(s.Form) {
		w.param("%s number%d", number(s.numberType(k)), k)
	}
	for k := range s.Extra[0] {
		w.param("i64 n%d", k)
	}
	if s.Dims > 0 {
		w.param("layout l")
	}
	w.function("elementwise_" + opName(s.Op))
	for k := range int(s.Form) {
		if s.numberType(k) == s.Compute {
			w.line("\tT s%d = %s;", k, computed(s.Compute, fmt.Sprintf("number%d", k)))
		}
	}
	for k := range int(s.Ins) {
		if s.Values>>k&1 == 1 {
			w.line("\tT %c = %s;", 'a'+k, computed(s.Compute, fmt.Sprintf("i%d", k)))
		}
	}
	w.eachElement(s, operands, func() {
		for k, t := range s.ins() {
			o := int(s.Outs) + k
			at := fmt.Sprintf("i%d[at%d]", k, o)
			if s.Extra[2]>>o&1 == 1 {
				at = fmt.Sprintf("tile%d[j][k]", k)
			}
			if s.Values>>k&1 == 0 {
				w.line("\tT %c = %s;", 'a'+k, converted(s.Compute, t, at))
			}
		}
		if call != "" {
			w.line("\t%s", call)
		}
		for k, e := range expressions {
			e = strings.TrimSpace(e)
			if s.Compute.IsComplex() {
				w.line("\tT r%d = %s;", k, e)
			} else {
				w.line("\tT r%d = (T)(%s);", k, e)
			}
		}
		for k, t := range s.outs() {
			w.line("\to%d[at%d] = %s;", k, k, narrowed(t, s.Compute, fmt.Sprintf("r%d", k)))
		}
	})
	return w.done()
}

// eachElement writes a block's loop over its elements: element does one, whose places are at0 and so on. Blocks have as
// many each, however many blocks there are.
func (w *writer) eachElement(s Spec, operands int, element func()) {
	unsigned := "u32"
	if s.Wide {
		unsigned = "u64"
	}
	if s.Extra[1] == 0 {
		w.line("\tI each = (I)((%s)(n - 1) / ((%[1]s)BLOCKS * THREADS) + 1) * THREADS;", unsigned)
		w.line("\ti64 first = BLOCK * each;")
		w.line("\tif (first >= n)")
		w.line("\t\treturn;")
		w.line("\tI from = (I)first, to = n - from < each ? n : from + each;")
		each := func() {
			w.places("i", "l", int(s.Dims), operands)
			element()
		}
		if s.Dims > 0 {
			w.threadLoop(s, "i", each)
		} else {
			w.threadLoopAhead(s, "i", each)
		}
		return
	}
	if s.Extra[2] != 0 {
		w.eachTransposedTile(s, operands, unsigned, element)
		return
	}
	w.line("\tI inner = l.sizes[0], pieces = (inner - 1) / %d + 1, units = n / inner * pieces;", elementwisePiece)
	w.eachUnit(unsigned, func() {
		w.line("\tI row = unit / pieces, from = unit %% pieces * %d, to = inner - from < %[1]d ? inner : from + %[1]d;",
			elementwisePiece)
		w.placesFrom("row", "l", 1, int(s.Dims), operands)
		for o := range operands {
			w.line("\tI row%d = at%[1]d;", o)
		}
		w.threadLoop(s, "j", func() {
			if s.Extra[0] > 0 {
				w.line("\tI i = row * inner + j;")
			}
			for o := range operands {
				w.line("\tI at%d = row%[1]d%s;", o, s.step(o))
			}
			element()
		})
	})
}

// eachUnit writes a loop over a block's units, of which all blocks together have `units`.
func (w *writer) eachUnit(unsigned string, body func()) {
	w.line("\tI each = (I)((%s)(units - 1) / (%[1]s)BLOCKS) + 1;", unsigned)
	w.line("\ti64 first = BLOCK * each;")
	w.line("\tif (first >= units)")
	w.line("\t\treturn;")
	w.line("\tI last = units - (I)first < each ? units : (I)first + each;")
	w.line("\tfor (I unit = (I)first; unit < last; unit++) {")
	body()
	w.line("\t}")
}

// step is what element j of the innermost dimension adds to an operand's place.
func (s Spec) step(operand int) string {
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

// computed is a number of a call as T.
func computed(t dtype.DType, x string) string {
	switch {
	case t.IsComplex():
		return x
	case t == dtype.Bool:
		return "(" + x + " != 0)"
	}
	return "(T)" + x
}

func opName(op string) string {
	if !IsUser(op) {
		return op
	}
	if u, err := userOf(op); err == nil {
		return u.entry().name
	}
	return "user"
}
