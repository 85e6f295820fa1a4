package text

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
)

// The most that a kernel has.
const (
	MaxOperands = 16 // results and inputs together
	MaxInputs   = 8
	MaxDims     = 16 // after those that lie one after the other are joined
)

// Spec describes a kernel: all that its text depends on. It's a value that can be compared, the key of a loaded kernel.
type Spec struct {
	Family  Family
	Op      string                   // of the family's table, or a user's function
	Compute dtype.DType              // what it computes in
	Types   [MaxOperands]dtype.DType // of the results, then of the inputs
	Outs    uint8
	Ins     uint8
	Values  uint16     // inputs that are numbers in the call, a bit each
	Dims    uint8      // of the places of elements; 0: all operands are dense and in the same order
	Wide    bool       // 64 bits for indexes
	Block   uint16     // threads
	Vector  bool       // they are the lanes of a processor's vector, of which a core runs a block: see [Writer.ThreadLoop]
	Unit    MatrixUnit // that multiplies
	Part    bool       // a launch has the blocks from a place of the grid on: see [Source.Part]
	Form    uint8      // a variant, by the family
	Extra   [4]int32
}

// Family is a kind of kernels, which share a generator.
type Family uint8

var families = map[Family]struct {
	name     string
	generate func(Spec) (Source, error)
}{}

// Register adds a family, in an init function.
func Register(f Family, name string, generate func(Spec) (Source, error)) {
	if other, twice := families[f]; twice {
		panic("kernel: families " + other.name + " and " + name + " have one number")
	}
	families[f] = struct {
		name     string
		generate func(Spec) (Source, error)
	}{name, generate}
}

// Families are all that are registered.
func Families() []Family { return slices.Sorted(maps.Keys(families)) }

func (f Family) String() string {
	if x, ok := families[f]; ok {
		return x.name
	}
	return fmt.Sprintf("Family(%d)", uint8(f))
}

// Source generates the kernel's text. The same spec gives the same text.
func (s Spec) Source() (_ Source, err error) {
	defer Contain("the generator of kernels", &err)
	f, ok := families[s.Family]
	if !ok {
		return Source{}, fmt.Errorf("kernel: there is no %v", s.Family)
	}
	src, err := f.generate(s)
	src.Part = s.Part
	return src, err
}

// String is a short name, for errors and profiles.
func (s Spec) String() string {
	name := s.Op
	if _, kernel, ok := strings.Cut(name, "KERNEL void "); ok {
		name, _, _ = strings.Cut(kernel, "(")
	} else if IsUser(name) {
		name = "user function"
	}
	text := s.Family.String() + " " + name + "("
	for k := range int(s.Outs + s.Ins) {
		switch k {
		case 0:
		case int(s.Outs):
			text += " <- "
		default:
			text += ", "
		}
		text += s.Types[k].Short()
	}
	return text + ")"
}

func (s Spec) Results() []dtype.DType { return s.Types[:s.Outs] }
func (s Spec) Inputs() []dtype.DType  { return s.Types[s.Outs : s.Outs+s.Ins] }

// IsUser reports whether an operation is a text from outside, a user's function or a whole kernel, and not a name of the
// table.
func IsUser(op string) bool {
	return strings.Contains(op, "template") || strings.Contains(op, "KERNEL")
}
