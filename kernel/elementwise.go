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
	if err := p.space.init(outs[0].Sizes); err != nil {
		return err
	}
	for k := range outs {
		s.Types[k] = outs[k].Type
		if err := outs[k].check("a result"); err != nil {
			return err
		}
		if outs[k].Value != nil || len(outs[k].Sizes) != p.space.dims || outs[k].Count() != p.space.count {
			return fmt.Errorf("kernel: %v: results of sizes %v and %v", s, outs[0].Sizes, outs[k].Sizes)
		}
		if err := p.space.add(&outs[k]); err != nil {
			return err
		}
	}
	for k := range ins {
		s.Types[len(outs)+k] = ins[k].Type
		if err := ins[k].check("an input"); err != nil {
			return err
		}
		if ins[k].Value != nil {
			s.Values |= 1 << k
		}
		if err := p.space.add(&ins[k]); err != nil {
			return err
		}
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
	s.Wide = p.space.wide()
	if !p.space.dense(uint32(s.Values) << s.Outs) {
		s.Dims = uint8(p.space.dims)
	}
	c := p.call(s, p.space.count)
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
	for _, v := range numbers {
		v.add(&c.Args, compute)
	}
	for _, n := range integers {
		c.Args.Int64(int64(n))
	}
	if s.Dims > 0 {
		p.space.layout(&c.Args, s.Wide)
	}
	return nil
}

// elementwiseCheck refuses what isn't in the table. A user's function is checked when its text is generated.
func elementwiseCheck(s Spec) error {
	if !Supported(s.Compute) || s.Compute.Size() == 2 && s.Compute.IsFloating() {
		return fmt.Errorf("kernel: %v can't be computed in %v", s, s.Compute)
	}
	if isUser(s.Op) {
		return nil
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
	var expressions []string
	if isUser(s.Op) {
		call, err := userCall(&w, s)
		if err != nil {
			return Source{}, err
		}
		expressions = call
	} else {
		o, _ := OpNamed(s.Op)
		expressions = strings.Split(o.expression(s.Compute), ";")
	}
	w.layoutType("layout", int(s.Dims), operands)
	w.pointers(s)
	w.param("I n")
	for k := range s.Form {
		w.param("%s number%d", number(s.Compute), k)
	}
	for k := range s.Extra[0] {
		w.param("i64 n%d", k)
	}
	if s.Dims > 0 {
		w.param("layout l")
	}
	w.function("elementwise_" + opName(s.Op))
	w.line("\tI i = (I)(BLOCK * THREADS + THREAD);")
	w.line("\tif (i >= n)")
	w.line("\t\treturn;")
	w.places("i", "l", int(s.Dims), operands)
	for k := range s.Form {
		w.line("\tT s%d = %s;", k, computed(s.Compute, fmt.Sprintf("number%d", k)))
	}
	for k, t := range s.ins() {
		name := fmt.Sprintf("i%d", k)
		if s.Values>>k&1 == 1 {
			w.line("\tT %c = %s;", 'a'+k, computed(s.Compute, name))
		} else {
			w.line("\tT %c = %s;", 'a'+k, converted(s.Compute, t, fmt.Sprintf("%s[at%d]", name, int(s.Outs)+k)))
		}
	}
	if isUser(s.Op) && s.Outs > 1 {
		w.line("\tT %s;", list("r", int(s.Outs)))
		w.line("\t%s;", expressions[0])
	} else {
		for k, e := range expressions {
			e = strings.TrimSpace(e)
			if s.Compute.IsComplex() {
				w.line("\tT r%d = %s;", k, e)
			} else {
				w.line("\tT r%d = (T)(%s);", k, e)
			}
		}
	}
	for k, t := range s.outs() {
		w.line("\to%d[at%d] = %s;", k, k, narrowed(t, s.Compute, fmt.Sprintf("r%d", k)))
	}
	return w.done()
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

// userCall writes a user's function and returns its call.
func userCall(w *writer, s Spec) ([]string, error) {
	f, err := parseUser(s.Op)
	if err != nil {
		return nil, err
	}
	results := max(1, len(f.results))
	if len(f.inputs) != int(s.Ins+s.Form) || results != int(s.Outs) {
		return nil, fmt.Errorf("kernel: %s takes %d inputs and numbers and has %d results, and the call has %d, %d and %d",
			f.name, len(f.inputs), results, s.Ins, s.Form, s.Outs)
	}
	f.write(w)
	var args []string
	for k := range int(s.Ins) {
		args = append(args, string(rune('a'+k)))
	}
	for k := range int(s.Form) {
		args = append(args, fmt.Sprintf("s%d", k))
	}
	if f.void {
		for k := range f.results {
			args = append(args, fmt.Sprintf("&r%d", k))
		}
	}
	return []string{fmt.Sprintf("user_%s(%s)", f.name, strings.Join(args, ", "))}, nil
}

func opName(op string) string {
	if !isUser(op) {
		return op
	}
	if f, err := parseUser(op); err == nil {
		return f.name
	}
	return "user"
}

func list(prefix string, n int) string {
	var names []string
	for k := range n {
		names = append(names, fmt.Sprintf("%s%d", prefix, k))
	}
	return strings.Join(names, ", ")
}
