package text

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/chorus-comms/chorus/dtype"
)

// Writer gathers the text of a kernel.
type Writer struct {
	strings.Builder
	src    Source
	params []string
}

// Line writes a line, indented by the braces before it.
func (w *Writer) Line(format string, args ...any) {
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

// Dialect writes a file of the dialect: functions of one kind of numbers.
func (w *Writer) Dialect(name string) { w.WriteString(dialect(name)) }

func (w *Writer) Uses(types ...dtype.DType) {
	for _, t := range types {
		w.src.F64 = w.src.F64 || Is64(t)
	}
}

// Atomic says that words of so many bytes are changed by atomic operations.
func (w *Writer) Atomic(size int) { w.src.Atomic64 = w.src.Atomic64 || size >= 8 }

// Begin writes the types T and R, and the mathematical functions of them.
func (w *Writer) Begin(s Spec) {
	w.Uses(s.Compute)
	w.Uses(s.Types[:s.Outs+s.Ins]...)
	w.Line("typedef %s T;", Stored(s.Compute))
	w.Line("typedef %s R;", Stored(Real(s.Compute)))
	switch {
	case s.Compute.IsComplex():
		w.Dialect("complex")
	case s.Compute.IsFloating():
		if s.Vector && s.Compute == dtype.Float32 {
			w.Line("#define EXP_OF_LANES")
		}
		w.Dialect("math")
	default:
		w.Dialect("integer")
	}
	if s.Wide {
		w.Line("typedef i64 I;")
		w.Line("typedef u64 U;")
	} else {
		w.Line("typedef i32 I;")
		w.Line("typedef u32 U;")
	}
}

// Param adds one to the function's.
func (w *Writer) Param(format string, args ...any) {
	w.params = append(w.params, fmt.Sprintf(format, args...))
}

// Pointers adds parameters for the results and inputs, o0, o1 and i0, i1 and so on. Inputs that are numbers are of T.
func (w *Writer) Pointers(s Spec) {
	for k, t := range s.Results() {
		w.Param("GLOBAL %s *o%d", Stored(t), k)
	}
	for k, t := range s.Inputs() {
		if s.Values>>k&1 == 1 {
			w.Param("%s i%d", Number(s.Compute), k)
		} else {
			w.Param("GLOBAL const %s *i%d", Stored(t), k)
		}
	}
}

// Number is the C type of a number of a call.
func Number(t dtype.DType) string {
	switch {
	case t.IsComplex(), t.IsFloating():
		return Opmath(t).Short()
	}
	return "i64"
}

// Function writes the head of the kernel. OpenCL has functions named shuffle, select and dot, which a kernel can't be.
func (w *Writer) Function(name string) {
	w.src.Entry = "chorus_" + identifier(name)
	w.Line("KERNEL void %s(%s) {", w.src.Entry, strings.Join(w.params, ", "))
}

// Done closes the kernel.
func (w *Writer) Done() (Source, error) {
	w.Line("}")
	w.src.Body = w.String()
	return w.src, nil
}

func identifier(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, s)
}
