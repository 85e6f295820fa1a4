package ops

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Op is an operation of PyTorch's on single elements. Its expressions are of the inputs a, b, c, d and of the call's
// numbers s0, s1, s2, all of the type that's computed in. An empty expression isn't defined for that kind of type.
// Several results stand one after the other, with semicolons between.
type Op struct {
	Name    string
	Ins     int
	Numbers int
	Rule    Rule

	Float, Int, Bool, Complex string

	Integers int // numbers n0, n1 of 64 bits whatever the type is; i is the element's number
}

// Rule says what type a result has.
type Rule uint8

const (
	Same     Rule = iota // the inputs' common type
	Floating             // likewise, with float32 for integers and bool
	Truth                // bool
	Part                 // as Same, and the type of the parts for complex numbers
)

func (r Rule) String() string { return [...]string{"same", "floating", "bool", "part"}[r] }

// Named finds an operation of single elements.
func Named(name string) (*Op, bool) {
	k, ok := opNames[name]
	if !ok {
		return nil, false
	}
	return &ops[k], true
}

// All are the operations on single elements.
func All() []Op { return append([]Op(nil), ops...) }

var opNames = func() map[string]int {
	m := make(map[string]int, len(ops))
	for k, o := range ops {
		if _, twice := m[o.Name]; twice {
			panic("kernel: two operations " + o.Name)
		}
		m[o.Name] = k
	}
	return m
}()

// Types are the type that an operation computes in and that of its result, for inputs whose common type is given.
func (o *Op) Types(common dtype.DType) (compute, result dtype.DType, err error) {
	result = common
	if o.Rule == Floating && !common.IsFloating() && !common.IsComplex() {
		result = dtype.Float32
	}
	compute = text.Opmath(result)
	if o.Expression(compute) == "" || o.Name == "nextafter" && compute != result { // what follows in 16 bits is another
		return 0, 0, fmt.Errorf("kernel: %s isn't defined for %v", o.Name, common)
	}
	switch o.Rule {
	case Truth:
		result = dtype.Bool
	case Part:
		result = text.Real(result)
	}
	return compute, result, nil
}

// Expression is that for a type that is computed in; empty if it isn't defined.
func (o *Op) Expression(compute dtype.DType) string {
	switch {
	case compute.IsComplex():
		return o.Complex
	case compute.IsFloating():
		return o.Float
	case compute == dtype.Bool:
		return o.Bool
	}
	return o.Int
}

// Results is how many the operation has.
func (o *Op) Results() int {
	return max(strings.Count(o.Float, ";"), strings.Count(o.Int, ";")) + 1
}

// Promote is the common type of two tensors of one category of dimensions, as torch.promote_types says.
func Promote(a, b dtype.DType) dtype.DType {
	rank := func(t dtype.DType) int {
		switch {
		case t == dtype.Bool:
			return 0
		case t.IsInteger():
			return 1
		case t.IsFloating():
			return 2
		}
		return 3
	}
	if rank(a) > rank(b) {
		a, b = b, a
	}
	switch {
	case a == b:
		return a
	case rank(b) == 3 && (a == dtype.Float64 || a == dtype.Complex128):
		return dtype.Complex128
	case rank(a) < rank(b):
		return b
	case rank(a) == 1:
		if a.IsSigned() == b.IsSigned() {
			return larger(a, b)
		}
		if a.IsSigned() {
			a, b = b, a
		}
		if a.Size() < b.Size() { // unsigned and a larger signed one
			return b
		}
		switch a.Size() {
		case 1:
			return dtype.Int16
		case 2:
			return dtype.Int32
		}
		return dtype.Int64
	case a.Size() == b.Size(): // float16 and bfloat16
		return dtype.Float32
	}
	return larger(a, b)
}

func larger(a, b dtype.DType) dtype.DType {
	if a.Size() > b.Size() {
		return a
	}
	return b
}

// both is an expression for all real numbers.
func both(name string, ins, numbers int, rule Rule, real, boolean, complex string) Op {
	return Op{name, ins, numbers, rule, real, real, boolean, complex, 0}
}

// float is one that is defined for floating-point and complex numbers.
func float(name string, ins, numbers int, real, complex string) Op {
	return Op{name, ins, numbers, Floating, real, "", "", complex, 0}
}

// compare is a comparison.
func compare(name, real, complex string) Op {
	return Op{name, 2, 0, Truth, real, real, real, complex, 0}
}

// only is one that is defined for real floating-point numbers, and gives one.
func only(name string, ins, numbers int, real string) Op {
	return Op{name, ins, numbers, Same, real, "", "", "", 0}
}

// bits is one of integers and bool.
func bits(name string, ins int, integer, boolean string) Op {
	return Op{name, ins, 0, Same, "", integer, boolean, "", 0}
}

// placed is an operation that depends on the place of an element.
func placed(name string, ins, integers, numbers int, real, complex string) Op {
	return Op{name, ins, numbers, Same, real, real, real, complex, integers}
}
