package kernel

import (
	"embed"
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
)

// texts are the kernels whose C doesn't depend on a number of operands. Definitions from a kernel's spec stand before
// its file, which chooses by them: see [writer.defines].
//
//go:embed text
var texts embed.FS

// define writes a definition. Its text is one line, whatever the lines of the value are.
func (w *writer) define(name string, value any) {
	text := strings.Join(strings.Fields(fmt.Sprint(value)), " ")
	fmt.Fprintf(w, "#define %s %s\n", name, text)
}

// defineIf defines a name without a value.
func (w *writer) defineIf(is bool, name string) {
	if is {
		w.define(name, "")
	}
}

// defines writes what files of kernels know of a spec:
//
//   - POINTERS: the parameters of the results and inputs, and LAYOUT: that of the layout type, after a comma;
//   - O0 and I0: the types of elements in memory, OUT0(x): a number x as such an element, IN0(x): an element as T;
//   - ZERO, ADD_TO(a, b) and MULTIPLY_ADD(a, b, c), which also complex numbers have;
//   - PLACES(i): declares the places of element number i, at0 and so on, in as many operands as the layout has;
//   - NUMBER, the type of numbers, and COMPUTED(x): a number as the type that is computed with;
//   - DIMS, THREADS_OF_BLOCK, and the kind of T: COMPLEX, FLOATING or neither.
func (w *writer) defines(s Spec, operands int) {
	w.pointers(s)
	w.define("POINTERS", strings.Join(w.params, ", "))
	for k, t := range s.outs() {
		if !t.Valid() {
			continue
		}
		w.define(fmt.Sprintf("O%d", k), stored(t))
		w.define(fmt.Sprintf("OUT%d(x)", k), narrowed(t, s.Compute, "x"))
	}
	for k, t := range s.ins() {
		if !t.Valid() {
			continue
		}
		w.define(fmt.Sprintf("I%d", k), stored(t))
		w.define(fmt.Sprintf("IN%d(x)", k), converted(s.Compute, t, "x"))
	}
	w.arithmetic(s.Compute)
	w.define("NUMBER", number(s.Compute))
	w.define("COMPUTED(x)", computed(s.Compute, "x"))
	w.define("DIMS", s.Dims)
	w.define("THREADS_OF_BLOCK", s.Block)
	w.layout(s, operands)
}

// arithmetic defines what is written in another way for complex numbers.
func (w *writer) arithmetic(compute dtype.DType) {
	w.define("ZERO", zero(compute))
	w.define("MULTIPLY_ADD(a, b, c)", strings.TrimSuffix(multiplyAdd(compute, "a", "b", "c"), ";"))
	add := "a += b"
	if compute.IsComplex() {
		add = "a = c_add(a, b)"
	}
	w.define("ADD_TO(a, b)", add)
	w.defineIf(compute.IsComplex(), "COMPLEX")
	w.defineIf(compute.IsFloating(), "FLOATING")
}

// layout writes the layout type, and defines LAYOUT and PLACES.
func (w *writer) layout(s Spec, operands int) {
	if operands == 0 {
		return
	}
	w.layoutType("layout", int(s.Dims), operands)
	w.define("LAYOUT", map[bool]string{true: ", layout l"}[s.Dims > 0])
	var places writer
	places.places("i", "l", int(s.Dims), operands)
	w.define("PLACES(i)", places.String())
}

// file writes a file of kernels, of which the definitions before choose one.
func (w *writer) file(file, entry string) (Source, error) {
	w.src.Entry = "chorus_" + identifier(entry)
	w.define("ENTRY", w.src.Entry)
	w.include(file)
	w.src.Body = w.String()
	return w.src, nil
}

// include writes a file with those that it includes, which may be there several times.
func (w *writer) include(file string) {
	text, err := texts.ReadFile("text/" + file + ".h")
	if err != nil {
		panic("kernel: " + err.Error())
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, `#include "`); ok {
			w.include(strings.TrimSuffix(strings.TrimSpace(name), `.h"`))
			continue
		}
		w.WriteString(line)
	}
}
