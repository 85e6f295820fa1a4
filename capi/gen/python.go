package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/comm/backend"
)

// numbers are C's types as ctypes and package struct of Python have them.
var numbers = map[string]struct{ ctypes, packed string }{
	"int": {"c_int", "i"}, "long long": {"c_longlong", "q"}, "double": {"c_double", "d"},
	"int32_t": {"c_int32", "i"}, "uint32_t": {"c_uint32", "I"}, "int64_t": {"c_int64", "q"}, "uint64_t": {"c_uint64", "Q"},
	"intptr_t": {"c_ssize_t", ""}, "uintptr_t": {"c_size_t", ""},
}

// module writes the Python module of the ABI.
type module struct {
	strings.Builder
	aliases map[string]string // typedefs of numbers
	classes map[string]string // of structs and types of functions
}

// python returns the text of _abi.py, which says in Python what the header says in C.
func python(d *declarations) (string, error) {
	m := &module{aliases: map[string]string{}, classes: map[string]string{}}
	m.WriteString(`"""The declarations of capi/chorus.h: constants, structs, types of callbacks, and functions.

Written by capi/gen; don't edit. The header has the explanations.
"""

from __future__ import annotations

import enum
import struct
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_ssize_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

# Plain integers: they stand in the path of every operation, where an enumeration's members cost as much as the call.
`)
	statuses, members := true, "" // a dtype is the first after them
	for _, v := range d.values {
		name := strings.TrimPrefix(v[0], "CHORUS_")
		fmt.Fprintf(m, "%s = %s\n", name, v[1])
		if statuses = statuses && name != "BOOL"; statuses {
			members += fmt.Sprintf("    %s = %s\n", name, v[1])
		}
	}
	m.WriteString("\n\nclass Status(enum.IntEnum):\n    \"\"\"How a call ended.\"\"\"\n\n" + members)
	m.table(d)
	for _, t := range d.types {
		if err := m.declare(t); err != nil {
			return "", fmt.Errorf("%s: %w", t.name, err)
		}
	}
	m.WriteString("\n\n# The functions, without their common prefix: result, arguments.\nFUNCTIONS: dict[str, tuple[Any, list[Any]]] = {\n")
	for _, f := range d.functions {
		signature, err := m.signature(f)
		if err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
		result, arguments, _ := strings.Cut(signature, ", ")
		fmt.Fprintf(m, "    %q: (%s, [%s]),\n", strings.TrimPrefix(f.name, "chorus_"), result, arguments)
	}
	m.WriteString("}\n")
	return m.String(), nil
}

// table writes what the table of operations says that Python needs.
func (m *module) table(d *declarations) {
	m.WriteString("\n\n# The operations' names, and which of them one rank has a part of its own in.\nOPERATIONS = {\n")
	var rooted []string
	for _, k := range backend.Kinds() {
		name := strings.ToUpper(k.String())
		fmt.Fprintf(m, "    %s: %q,\n", name, k)
		if k.Operation().Root {
			rooted = append(rooted, name)
		}
	}
	fmt.Fprintf(m, "}\nROOTED = frozenset((%s))\nWINDOW_OPERATIONS = {\n", strings.Join(rooted, ", "))
	at := func(name string) int {
		return slices.IndexFunc(d.values, func(v [2]string) bool { return v[0] == name })
	}
	for _, v := range d.values[at("CHORUS_PUT") : at("CHORUS_FENCE")+1] {
		name := strings.TrimPrefix(v[0], "CHORUS_")
		fmt.Fprintf(m, "    %s: %q,\n", name, strings.ToLower(name))
	}
	m.WriteString("}\n")
}

// declare writes a type, or remembers what it stands for.
func (m *module) declare(t declaration) error {
	if t.alias != "" {
		m.aliases[t.name] = t.alias
		return nil
	}
	if t.function != nil {
		return m.callback(t.name, t.function)
	}
	var fields []string
	packed := "="
	for _, f := range t.fields {
		of, err := "c_void_p", error(nil)
		code := "Q"
		switch {
		case f.callee != nil && len(f.callee.takes) > 0 && f.callee.takes[0].name == "user": // Python writes it
			of = f.name + "_fn"
			if err := m.callback(of, f.callee); err != nil {
				return err
			}
			of = m.classes[of]
		case f.callee == nil:
			if of, err = m.of(f.of); err != nil {
				return err
			}
			if n, ok := numbers[m.plain(f.of)]; ok {
				code = n.packed
			}
		}
		packed += code
		name := f.name
		if slices.Contains([]string{"in", "with", "async"}, name) { // words of Python's
			name += "_"
		}
		fields = append(fields, fmt.Sprintf("        (%q, %s),\n", name, of))
	}
	m.classes[t.name] = camel(t.name)
	fmt.Fprintf(m, "\n\nclass %s(Structure):\n    _fields_ = [\n%s    ]\n", m.classes[t.name], strings.Join(fields, ""))
	if t.name == "chorus_op" {
		fmt.Fprintf(m, "\n\n# chorus_op, packed in one go.\nOP = struct.Struct(%q)\n", packed)
	}
	return nil
}

// callback writes the type of a function that the library calls.
func (m *module) callback(name string, f *function) error {
	m.classes[name] = strings.ToUpper(strings.TrimPrefix(name, "chorus_"))
	signature, err := m.signature(*f)
	fmt.Fprintf(m, "\n\n%s = CFUNCTYPE(%s)\n", m.classes[name], signature)
	return err
}

// signature lists a function's result and arguments.
func (m *module) signature(f function) (string, error) {
	result, err := m.of(f.result)
	types := []string{result}
	for _, a := range f.takes {
		of, e := m.of(a.of)
		if e != nil {
			err = e
		}
		types = append(types, of)
	}
	return strings.Join(types, ", "), err
}

// plain is the number that a type stands for, or the type.
func (m *module) plain(t string) string {
	for m.aliases[t] != "" {
		t = m.aliases[t]
	}
	return t
}

// of returns the type of ctypes for a type of C.
func (m *module) of(t string) (string, error) {
	switch t {
	case "void":
		return "None", nil
	case "char *":
		return "c_char_p", nil
	case "void *", "chorus_reply *", "chorus_op *", "chorus_buffer *": // operations and lists are packed
		return "c_void_p", nil
	}
	if to, ok := strings.CutSuffix(t, "*"); ok {
		of, err := m.of(strings.TrimSpace(strings.Replace(to, "**", "*", 1)))
		return "POINTER(" + of + ")", err
	}
	if n, ok := numbers[m.plain(t)]; ok {
		return n.ctypes, nil
	}
	if c, ok := m.classes[t]; ok {
		return c, nil
	}
	return "", fmt.Errorf("what is %q in Python?", t)
}

// camel writes chorus_comm_info as CommInfo.
func camel(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(name, "chorus_"), "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
