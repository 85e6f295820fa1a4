package text

import (
	"embed"
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
)

// texts are the kernels whose C doesn't depend on a number of operands. Definitions from a kernel's spec stand before
// its file, which chooses by them: see [Writer.Defines].
//
//go:embed *.h
var texts embed.FS

// Define writes a definition. Its text is one line, whatever the lines of the value are.
func (w *Writer) Define(name string, value any) {
	text := strings.Join(strings.Fields(fmt.Sprint(value)), " ")
	fmt.Fprintf(w, "#define %s %s\n", name, text)
}

// DefineIf defines a name without a value.
func (w *Writer) DefineIf(is bool, name string) {
	if is {
		w.Define(name, "")
	}
}

// IfDefined defines a name where the dialect has another one.
func (w *Writer) IfDefined(other, name string, value any) {
	w.WriteString("#ifdef " + other + "\n")
	w.Define(name, value)
	w.WriteString("#endif\n")
}

// Generator defines GENERATOR: the parameters that say which part of a generator's sequence a kernel has. With a state
// they have a pointer to it.
func (w *Writer) Generator(state bool) {
	w.DefineIf(state, "STATE")
	w.Define("GENERATOR", "u64 seed, u64 block"+map[bool]string{true: ", GLOBAL const u64 *state"}[state])
}

// Defines writes what files of kernels know of a spec:
//
//   - POINTERS: the parameters of the results and inputs, and LAYOUT: that of the layout type, after a comma;
//   - O0 and I0: the types of elements in memory, OUT0(x): a number x as such an element, IN0(x): an element as T;
//   - ZERO, ADD_TO(a, b) and MULTIPLY_ADD(a, b, c), which also complex numbers have;
//   - OFFSETS(i): declares the offsets of element number i, at0 and so on, in as many operands as the layout has;
//   - NUMBER, the type of numbers, and COMPUTED(x): a number as the type that is computed with;
//   - DIMS, THREADS_OF_BLOCK, and the kind of T: COMPLEX, FLOATING or neither.
func (w *Writer) Defines(s Spec, operands int) {
	w.Pointers(s)
	w.Define("POINTERS", strings.Join(w.params, ", "))
	for k, t := range s.Results() {
		if !t.Valid() {
			continue
		}
		w.Define(fmt.Sprintf("O%d", k), Stored(t))
		w.Define(fmt.Sprintf("OUT%d(x)", k), Narrowed(t, s.Compute, "x"))
	}
	for k, t := range s.Inputs() {
		if !t.Valid() {
			continue
		}
		w.Define(fmt.Sprintf("I%d", k), Stored(t))
		w.Define(fmt.Sprintf("IN%d(x)", k), Converted(s.Compute, t, "x"))
	}
	w.arithmetic(s.Compute)
	w.Define("NUMBER", Number(s.Compute))
	w.Define("COMPUTED(x)", Computed(s.Compute, "x"))
	w.Define("DIMS", s.Dims)
	w.Define("THREADS_OF_BLOCK", s.Block)
	w.Layout(s, operands)
}

// arithmetic defines what is written in another way for complex numbers.
func (w *Writer) arithmetic(compute dtype.DType) {
	w.Define("ZERO", Zero(compute))
	w.Define("MULTIPLY_ADD(a, b, c)", strings.TrimSuffix(MultiplyAdd(compute, "a", "b", "c"), ";"))
	add := "a += b"
	if compute.IsComplex() {
		add = "a = c_add(a, b)"
	}
	w.Define("ADD_TO(a, b)", add)
	w.DefineIf(compute.IsComplex(), "COMPLEX")
	w.DefineIf(compute.IsFloating(), "FLOATING")
}

// Layout writes the layout type, and defines LAYOUT and OFFSETS.
func (w *Writer) Layout(s Spec, operands int) {
	if operands == 0 {
		return
	}
	w.LayoutType("layout", int(s.Dims), operands)
	w.Define("LAYOUT", map[bool]string{true: ", layout l"}[s.Dims > 0])
	w.Define("OFFSETS(i)", Offsets("i", "l", 0, int(s.Dims), operands))
}

// File writes a file of kernels, of which the definitions before choose one.
func (w *Writer) File(file, entry string) (Source, error) {
	w.src.Entry = "chorus_" + identifier(entry)
	w.Define("ENTRY", w.src.Entry)
	w.Include(file)
	w.src.Body = w.String()
	return w.src, nil
}

// Include writes a file with those that it includes, which may be there several times.
func (w *Writer) Include(file string) {
	text, err := texts.ReadFile(file + ".h")
	if err != nil {
		panic("kernel: " + err.Error())
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, `#include "`); ok {
			w.Include(strings.TrimSuffix(strings.TrimSpace(name), `.h"`))
			continue
		}
		w.WriteString(line)
	}
}
