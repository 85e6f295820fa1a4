package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/capi/kernels"
	"github.com/chorus-comms/chorus/kernel/ops"
)

// csrc is the C++ source of PyTorch's devices.
const csrc = "python/device/csrc"

// structs returns the text of kernels.h and kernels.cpp: a struct for each row of the table of kernels.
func structs() (declared, defined string) {
	const note = "Written by capi/gen from the table of kernels, capi/kernels; don't edit.\n"
	var h, c strings.Builder
	h.WriteString("// The operations that kernels compute, each with its arguments by name. run enqueues it on the device's current\n" +
		"// stream; it returns false if there's none for these operands. Lists of integers must stay until run.\n// " + note +
		"#pragma once\n\n#include \"native/native.h\"\n\nnamespace chorus::kernels {\n")
	c.WriteString("// " + note + "#include \"native/kernels.h\"\n\nnamespace chorus::kernels {\n")
	for _, k := range kernels.Kinds() {
		for _, r := range k.Rows {
			s := &cppStruct{kind: "CHORUS_KERNEL_" + strings.ToUpper(k.Name), row: &r, name: strings.ToUpper(r.Form[:1]) + r.Form[1:]}
			s.declare(&h)
			s.define(&c)
		}
	}
	h.WriteString("\n} // namespace chorus::kernels\n")
	c.WriteString("\n} // namespace chorus::kernels\n")
	return h.String(), c.String()
}

// cppStruct is a row as a struct of C++.
type cppStruct struct {
	kind, name string
	row        *kernels.Row
}

// fields are those of a part.
func (s *cppStruct) fields(part kernels.Part) (list []kernels.Field) {
	for _, f := range s.row.Fields {
		if f.Part == part {
			list = append(list, f)
		}
	}
	return list
}

// has says whether there's a field of chorus_kernel's own.
func (s *cppStruct) has(name string) bool {
	return slices.ContainsFunc(s.fields(kernels.None), func(f kernels.Field) bool { return f.Name == name })
}

func (s *cppStruct) declare(w *strings.Builder) {
	fmt.Fprintf(w, "\nstruct %s {\n", s.name)
	if s.has("op") {
		w.WriteString("  int32_t op; // by number\n")
	}
	if s.has("compute") {
		w.WriteString("  c10::ScalarType compute;\n")
	}
	for part := kernels.Result; part <= kernels.Integer; part++ {
		for _, f := range s.fields(part) {
			fmt.Fprintf(w, "  %s %s%s;\n", cppType(&f), f.Name, initial(&f))
		}
	}
	if s.has("bad") {
		w.WriteString("  void* bad = nullptr;\n")
	}
	if s.has("op") {
		fmt.Fprintf(w, "\n  // number is that of %s, to be asked once.\n", orAll(s.row))
		fmt.Fprintf(w, "  static int32_t number(const char* name) {\n    return kernel_op(%s, name);\n  }\n", s.kind)
	}
	w.WriteString("\n  bool run(DeviceIndex index) const;\n};\n")
}

// orAll are the names of a row, in words.
func orAll(r *kernels.Row) string {
	if r.All != "" {
		return "one of the " + r.All
	}
	return strings.Join(r.Names, ", ")
}

// cppType is a field's type.
func cppType(f *kernels.Field) string {
	operand := map[kernels.Part]string{kernels.Result: "Output", kernels.Input: "Input"}[f.Part]
	switch {
	case f.Indexes():
		return "c10::SmallVector<IndexInput, 2>"
	case operand != "" && f.List():
		return "c10::SmallVector<" + operand + ", 4>"
	case operand != "" && f.Optional:
		return operand + "OrNone"
	case operand != "":
		return operand
	}
	return map[string]string{"float64": "double", "[]float64": "c10::SmallVector<double, 3>", "*kernel.Number": "chorus_number",
		"[]*kernel.Number": "c10::SmallVector<chorus_number, 4>", "int": "int64_t", "bool": "bool",
		"[]int": "at::IntArrayRef"}[f.Type.String()]
}

// initial is the value of a field that isn't given. An operand that must be there has none.
func initial(f *kernels.Field) string {
	switch f.Type.Kind() {
	case reflect.Float64, reflect.Int:
		return " = 0"
	case reflect.Bool:
		return " = false"
	case reflect.Slice, reflect.Pointer:
		return "{}"
	}
	if f.Optional {
		return "{}"
	}
	return ""
}

func (s *cppStruct) define(w *strings.Builder) {
	fmt.Fprintf(w, "\nbool %s::run(DeviceIndex index) const {\n", s.name)
	number := "op"
	if !s.has("op") {
		number = "number"
		fmt.Fprintf(w, "  static const int32_t number = kernel_op(%s, %q);\n", s.kind, s.row.Names[0])
	}
	w.WriteString("  Kernel x(" + s.kind + ", " + number + ");\n")
	if s.has("compute") {
		w.WriteString("  x.compute(compute);\n")
	}
	if s.has("bad") {
		w.WriteString("  x.bad(bad);\n")
	}
	for part := kernels.Result; part <= kernels.Integer; part++ {
		adds := map[kernels.Part]string{kernels.Result: "outs", kernels.Input: "ins", kernels.Number: "numbers",
			kernels.Integer: "integers"}[part]
		var names []string
		for _, f := range s.fields(part) {
			names = append(names, f.Name)
		}
		if len(names) > 0 {
			fmt.Fprintf(w, "  x.%s(%s);\n", adds, strings.Join(names, ", "))
		}
	}
	for _, f := range s.row.Fields {
		if f.Indexes() {
			fmt.Fprintf(w, "  for (const IndexInput& each : %s)\n    x.integers(each.size, each.stride, each.negative);\n", f.Name)
		}
	}
	w.WriteString("  return x.run(index);\n}\n")
}

// typing returns the text of element_rules.h: the rules of types of the operations on elements.
func typing() string {
	var b strings.Builder
	b.WriteString("// Which rule of types an operation on elements has. Written by capi/gen from the table of package kernel; don't edit.\n" +
		"static const struct {\n  const char* kernel;\n  Rule rule;\n} element_rules[] = {\n")
	for _, o := range ops.All() {
		rule := map[ops.Rule]string{ops.Same: "kCommon", ops.Floating: "kFloating", ops.Truth: "kCompare",
			ops.Part: "kPart"}[o.Rule]
		if o.Ins <= 1 { // which isn't converted
			rule = strings.NewReplacer("kCommon", "kSame", "kCompare", "kTruth").Replace(rule)
		}
		fmt.Fprintf(&b, "    {%q, Rule::%s},\n", o.Name, rule)
	}
	b.WriteString("};\n")
	return b.String()
}

var calledFunction = regexp.MustCompile(`\blib\.(\w+)\b`)

// functions returns the text of functions.h: the functions of the header that the sources below a root call.
func functions(root string, d *declarations) (string, error) {
	called := map[string]bool{"abi_version": true, "last_error": true}
	err := filepath.WalkDir(filepath.Join(root, csrc), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range calledFunction.FindAllSubmatch(text, -1) {
			called[string(m[1])] = true
		}
		return err
	})
	var b strings.Builder
	b.WriteString("// The functions of the C ABI that this extension calls. Written by capi/gen; don't edit.\n#pragma once\n\n" +
		"#define CHORUS_FUNCTIONS(X)")
	for _, f := range d.functions {
		if name := strings.TrimPrefix(f.name, "chorus_"); called[name] {
			fmt.Fprintf(&b, " \\\n  X(%s)", name)
		}
	}
	b.WriteByte('\n')
	return b.String(), err
}
