package kernels

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
)

// Field is an argument. Fields stand in the order in which chorus_kernel has them, those of each part for themselves.
// Structs in a form are a part of it. A field without a part is one of chorus_kernel's own: op, compute or bad.
type Field struct {
	Name     string
	Part     Part
	Type     reflect.Type
	Optional bool // the tag `row:"optional"`: an operand that may be left out; integers that all are there, or none

	at []int
}

// Part is one of chorus_kernel's lists.
type Part uint8

// The parts. An operand is an input, unless its tag says `row:"out"`.
const (
	None Part = iota
	Result
	Input
	Number
	Integer
)

func (p Part) String() string { return [...]string{"none", "result", "input", "number", "integer"}[p] }

// The types of fields. Lists take what is left: []Operand, []Number, []float64, and several []int in equal parts. An
// index is an input with three integers.
var (
	operandType  = reflect.TypeFor[kernel.Operand]()
	operandsType = reflect.TypeFor[[]kernel.Operand]()
	indexesType  = reflect.TypeFor[[]kernel.Index]()
	parts        = map[reflect.Type]Part{
		operandType: Input, operandsType: Input, indexesType: Input,
		reflect.TypeFor[float64](): Number, reflect.TypeFor[[]float64](): Number,
		reflect.TypeFor[*kernel.Number](): Number, reflect.TypeFor[[]*kernel.Number](): Number,
		reflect.TypeFor[int](): Integer, reflect.TypeFor[[]int](): Integer, reflect.TypeFor[bool](): Integer,
		reflect.TypeFor[string](): None, reflect.TypeFor[dtype.DType](): None, reflect.TypeFor[device.Ptr](): None,
	}
)

// List says whether a field takes what is left.
func (f *Field) List() bool { return f.Type.Kind() == reflect.Slice }

// Indexes says whether it's a list of indexes.
func (f *Field) Indexes() bool { return f.Type == indexesType }

// fieldsOf are a form's arguments.
func fieldsOf(form reflect.Type) []Field {
	var fields []Field
	for _, f := range reflect.VisibleFields(form) {
		part, known := parts[f.Type]
		switch {
		case f.Anonymous || !f.IsExported():
			continue
		case !known:
			panic(fmt.Sprintf("kernels: field %s of %v has type %v", f.Name, form, f.Type))
		}
		tags := strings.Split(f.Tag.Get("row"), ",")
		x := Field{Name: snake(f.Name), Part: part, Type: f.Type, at: f.Index}
		for _, tag := range tags {
			switch tag {
			case "out":
				x.Part = Result
			case "optional":
				x.Optional = true
			case "":
			default:
				panic(fmt.Sprintf("kernels: tag %q of field %s of %v", tag, f.Name, form))
			}
		}
		fields = append(fields, x)
	}
	return fields
}

// snake writes RunningMean as running_mean.
func snake(name string) string {
	var b strings.Builder
	for k, r := range name {
		if unicode.IsUpper(r) && k > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
