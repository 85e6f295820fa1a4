package kernel

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/chorus-comms/chorus/dtype"
)

// writer gathers the text of a kernel.
type writer struct {
	strings.Builder
	src    Source
	params []string
}

// line writes a line, indented by the braces before it.
func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w, format, args...)
	w.WriteByte('\n')
}

func (w *writer) uses(types ...dtype.DType) {
	for _, t := range types {
		w.src.F64 = w.src.F64 || is64(t)
	}
}

// begin writes the types T and R, and the mathematical functions of them.
func (w *writer) begin(s Spec) {
	w.uses(s.Compute)
	w.uses(s.Types[:s.Outs+s.Ins]...)
	w.line("typedef %s T;", stored(s.Compute))
	w.line("typedef %s R;", stored(Real(s.Compute)))
	switch {
	case s.Compute.IsComplex():
		w.WriteString(complexHeader)
	case s.Compute.IsFloating():
		if s.Vector && s.Compute == dtype.Float32 {
			w.line("#define EXP_OF_LANES")
		}
		w.WriteString(mathHeader)
	default:
		w.WriteString(integerHeader)
	}
	if s.Wide {
		w.line("typedef i64 I;")
		w.line("typedef u64 U;")
	} else {
		w.line("typedef i32 I;")
		w.line("typedef u32 U;")
	}
}

// param adds one to the function's.
func (w *writer) param(format string, args ...any) {
	w.params = append(w.params, fmt.Sprintf(format, args...))
}

// pointers adds parameters for the results and inputs, o0, o1 and i0, i1 and so on. Inputs that are numbers are of T.
func (w *writer) pointers(s Spec) {
	for k, t := range s.outs() {
		w.param("GLOBAL %s *o%d", stored(t), k)
	}
	for k, t := range s.ins() {
		if s.Values>>k&1 == 1 {
			w.param("%s i%d", number(s.Compute), k)
		} else {
			w.param("GLOBAL const %s *i%d", stored(t), k)
		}
	}
}

// number is the C type of a number of a call.
func number(t dtype.DType) string {
	switch {
	case t.IsComplex(), t.IsFloating():
		return Opmath(t).Short()
	}
	return "i64"
}

// function writes the head of the kernel. OpenCL has functions named shuffle, select and dot, which a kernel can't be.
func (w *writer) function(name string) {
	w.src.Entry = "chorus_" + identifier(name)
	w.line("KERNEL void %s(%s) {", w.src.Entry, strings.Join(w.params, ", "))
}

// done closes the kernel.
func (w *writer) done() (Source, error) {
	w.line("}")
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
