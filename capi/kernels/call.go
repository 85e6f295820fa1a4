package kernels

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// ErrArguments is a call with other numbers of arguments than its operation has, or with values that it doesn't take.
var ErrArguments = errors.New("wrong arguments")

// Operation is one by its number.
type Operation struct {
	Name  string // empty: a product without an activation
	Lists bool   // its operands are those of lists of tensors, of which there may be many

	row   *Row
	place int // of the row among all
}

// product is the kind whose operation may be 0.
const product = 6

// numbered are the operations of each kind, by their numbers.
var numbered = func() map[int][]Operation {
	all, rows := map[int][]Operation{}, 0
	for i := range kinds {
		k := &kinds[i]
		list := []Operation{{"", k.lists, &k.Rows[0], rows}}
		for j := range k.Rows {
			for _, name := range k.Rows[j].Names {
				list = append(list, Operation{name, k.lists, &k.Rows[j], rows})
			}
			rows++
		}
		all[k.Number] = list
	}
	return all
}()

// Find is the number of an operation by its name; 0 if there's none.
func Find(kind int, name string) int {
	for n, o := range numbered[kind] {
		if n > 0 && o.Name == name {
			return n
		}
	}
	return 0
}

// Numbered is the operation of a number, nil if there's none.
func Numbered(kind, number int) *Operation {
	list := numbered[kind]
	if number < 0 || number >= len(list) || number == 0 && kind != product {
		return nil
	}
	return &list[number]
}

// Call is a chorus_kernel. Its memory is used again.
type Call struct {
	Plan     kernel.Plan
	Compute  dtype.DType
	Bad      device.Ptr
	Outs     []kernel.Operand
	Ins      []kernel.Operand
	Numbers  []*kernel.Number
	Integers []int

	forms map[int]*filled // by the place of the row
}

// Add adds an operation to the plan. A user's text is the name of one on elements.
func (c *Call) Add(o *Operation, name string, l *loader.Loader) error {
	f, err := c.fill(o, name)
	if err != nil {
		return err
	}
	defer f.clear()
	c.Plan.FusedGEMM, c.Plan.SpMM, c.Plan.Atomics = 0, 0, false
	if f.opens != nil {
		f.opens.open(&c.Plan, l) // which changes what others use
	}
	return f.add(c)
}

// fill has the arguments in the operation's form. It holds no lock, so that a panic of it is an error.
func (c *Call) fill(o *Operation, name string) (f *filled, err error) {
	defer text.Contain("the arguments of a kernel", &err)
	if err := o.row.takes.check(name, c); err != nil {
		return nil, err
	}
	f = c.forms[o.place]
	if f == nil {
		f = newFilled(o.row)
		if c.forms == nil {
			c.forms = map[int]*filled{}
		}
		c.forms[o.place] = f
	}
	f.fill(name, c)
	return f, nil
}

// add adds the form to the plan. It holds no lock either.
func (f *filled) add(c *Call) (err error) {
	defer text.Contain("the plan of a kernel", &err)
	return f.form.add(&c.Plan)
}

// opens is a form that vendors' libraries may compute. It opens them when they're first needed.
type opens interface {
	open(p *kernel.Plan, l *loader.Loader)
}

// takes are how many arguments an operation has.
type takes struct {
	each     [Integer + 1]int  // without lists
	list     [Integer + 1]bool // any number more
	lists    int               // of integers, in equal parts
	optional int               // integers
	indexes  bool
}

func takesOf(fields []Field) (t takes) {
	for _, f := range fields {
		switch {
		case !f.List():
			t.each[f.Part]++
			if f.Part == Integer && f.Optional {
				t.optional++
			}
			continue
		case f.Part == Integer:
			t.lists++
		case f.Indexes():
			t.indexes = true
		}
		t.list[f.Part] = true
	}
	return t
}

// check is an error unless a call has them.
func (t *takes) check(name string, c *Call) error {
	got := [...]int{Result: len(c.Outs), Input: len(c.Ins), Number: len(c.Numbers), Integer: len(c.Integers)}
	fits := true
	for p := Result; p < Integer; p++ {
		fits = fits && (got[p] == t.each[p] || t.list[p] && got[p] > t.each[p])
	}
	more := got[Integer] - t.each[Integer]
	switch {
	case t.indexes:
		fits = fits && got[Input] > t.each[Input] && more == 3*(got[Input]-t.each[Input])
	case t.lists > 0:
		fits = fits && more >= 0 && more%t.lists == 0
	default:
		fits = fits && (more == 0 || more == -t.optional)
	}
	if !fits {
		return fmt.Errorf("%w: kernel %s has %s, %s, %s and %s, not %d, %d, %d and %d", ErrArguments, name, t.count(Result),
			t.count(Input), t.count(Number), t.count(Integer), got[Result], got[Input], got[Number], got[Integer])
	}
	return nil
}

// count says how many arguments of a part an operation has.
func (t *takes) count(p Part) string {
	switch {
	case p == Integer && t.indexes:
		return fmt.Sprintf("%d integers and 3 for each index", t.each[p])
	case p == Integer && t.lists > 0:
		return fmt.Sprintf("%d integers and %d equal lists", t.each[p], t.lists)
	case p == Integer && t.optional > 0:
		return fmt.Sprintf("%d or %d integers", t.each[p]-t.optional, t.each[p])
	case t.list[p]:
		return fmt.Sprintf("%d or more %ss", t.each[p], p)
	}
	return fmt.Sprintf("%d %ss", t.each[p], p)
}

// filled is a form whose fields are set for each call.
type filled struct {
	form   form
	opens  opens // the form, if it is so
	fields []place

	lists, fixed int // of integers
	indexes      []kernel.Index
	floats       []float64
}

// place is where a field is.
type place struct {
	part Part
	to   any // a pointer to the field
}

func newFilled(r *Row) *filled {
	v := reflect.New(r.form)
	f := &filled{form: v.Interface().(form), lists: r.takes.lists, fixed: r.takes.each[Integer]}
	f.opens, _ = f.form.(opens)
	for _, x := range r.Fields {
		f.fields = append(f.fields, place{x.Part, v.Elem().FieldByIndex(x.at).Addr().Interface()})
	}
	return f
}

// fill sets the fields. The call has as many arguments as they need, but for integers that are optional.
func (f *filled) fill(name string, c *Call) {
	operands := [...][]kernel.Operand{Result: c.Outs, Input: c.Ins}
	numbers, integers := c.Numbers, c.Integers
	each := 0 // integers of a list
	if f.lists > 0 {
		each = (len(integers) - f.fixed) / f.lists
	}
	integer := func() (n int) {
		if len(integers) > 0 {
			n, integers = integers[0], integers[1:]
		}
		return n
	}
	for i := range f.fields {
		part := f.fields[i].part
		switch to := f.fields[i].to.(type) {
		case *kernel.Operand:
			*to, operands[part] = operands[part][0], operands[part][1:]
		case *[]kernel.Operand:
			if *to = nil; len(operands[part]) > 0 {
				*to, operands[part] = operands[part], nil
			}
		case *float64:
			*to, numbers = numbers[0].Float, numbers[1:]
		case **kernel.Number:
			*to, numbers = numbers[0], numbers[1:]
		case *[]*kernel.Number:
			*to, numbers = numbers, nil
		case *[]float64:
			f.floats = f.floats[:0]
			for _, n := range numbers {
				f.floats = append(f.floats, n.Float)
			}
			*to, numbers = f.floats, nil
		case *int:
			*to = integer()
		case *bool:
			*to = integer() != 0
		case *[]int:
			if *to = nil; each > 0 {
				*to, integers = integers[:each], integers[each:]
			}
		case *[]kernel.Index:
			f.indexes = f.indexes[:0]
			for _, o := range operands[part] {
				f.indexes = append(f.indexes, kernel.Index{Operand: o, Size: integer(), Stride: integer(),
					NoNegative: integer() == 0})
			}
			*to, operands[part] = f.indexes, nil
		case *string:
			*to = name
		case *dtype.DType:
			*to = c.Compute
		case *device.Ptr:
			*to = c.Bad
		}
	}
}

// clear forgets the caller's memory.
func (f *filled) clear() {
	for i := range f.fields {
		switch to := f.fields[i].to.(type) {
		case *kernel.Operand:
			*to = kernel.Operand{}
		case *[]int:
			*to = nil
		}
	}
	clear(f.indexes)
}
