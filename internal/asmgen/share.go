package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Many functions differ in a few instructions only: the sums, minima and products of a type, or one operation on
// several types. Function share writes the common part once, as a macro; its parameters are the instructions that
// differ. The assembler generates the same code from it.

// mostDifferences is the most parameters that a macro has.
const mostDifferences = 12

// asmFunc is a function as avo prints it.
type asmFunc struct {
	head []string   // its comment and its TEXT line
	name string     // without package and (SB)
	body [][]string // per line its opcode and operands, or a label alone
}

// share returns the text of an assembly file with macros for what its functions have in common.
func share(text []byte) []byte {
	preamble, funcs := parseFuncs(string(text))
	var shapes []string
	alike := map[string][]*asmFunc{}
	for _, f := range funcs {
		s := f.shape()
		if alike[s] == nil {
			shapes = append(shapes, s)
		}
		alike[s] = append(alike[s], f)
	}
	var macros, out bytes.Buffer // go vet takes what stands between two functions for a part of the first
	for _, s := range shapes {
		for _, g := range groups(alike[s]) {
			g.writeMacro(&macros)
			g.writeFuncs(&out)
		}
	}
	return slices.Concat([]byte(strings.TrimSpace(preamble)), []byte("\n"), macros.Bytes(), out.Bytes())
}

func parseFuncs(text string) (preamble string, funcs []*asmFunc) {
	const comment = "\n// func "
	preamble, rest, _ := strings.Cut(text, comment)
	preamble += "\n"
	for part := range strings.SplitSeq(rest, comment) {
		f := &asmFunc{}
		for line := range strings.Lines("// func " + part) {
			switch fields := strings.Fields(line); {
			case len(fields) == 0:
			case f.name != "" && !strings.HasPrefix(line, "\t"):
				f.body = append(f.body, []string{strings.TrimSpace(line)})
			case f.name != "":
				op, args, _ := strings.Cut(strings.TrimSpace(line), " ")
				f.body = append(f.body, append([]string{op}, splitOperands(args)...))
			default:
				f.head = append(f.head, strings.TrimSpace(line))
				if fields[0] == "TEXT" {
					f.name = strings.TrimSuffix(strings.TrimPrefix(fields[1], "·"), "(SB),")
				}
			}
		}
		funcs = append(funcs, f)
	}
	return preamble, funcs
}

func splitOperands(args string) []string {
	if args = strings.TrimSpace(args); args == "" {
		return nil
	}
	return strings.Split(args, ", ")
}

// shape is what functions that share a macro must have in common: labels, jumps, and how many operands each line has.
func (f *asmFunc) shape() string {
	var b strings.Builder
	for _, line := range f.body {
		if len(line) == 1 || strings.HasPrefix(line[0], "J") {
			fmt.Fprintln(&b, line)
		} else {
			fmt.Fprintln(&b, len(line))
		}
	}
	return b.String()
}

// group is functions of one shape that share a macro, or one that has none.
type group struct {
	funcs  []*asmFunc
	params map[string]string // how the functions have a field that differs, to the name of its parameter
	order  []string          // the keys of params
}

// groups puts each function to the first that differ from it in few enough ways.
func groups(funcs []*asmFunc) (all []*group) {
next:
	for _, f := range funcs {
		for _, g := range all {
			if g.differences(append(g.funcs[:len(g.funcs):len(g.funcs)], f)) {
				continue next
			}
		}
		all = append(all, &group{funcs: []*asmFunc{f}})
	}
	return all
}

// differences makes the group one of funcs, unless they differ in too many ways.
func (g *group) differences(funcs []*asmFunc) bool {
	params, order := map[string]string{}, []string(nil)
	for i, line := range funcs[0].body {
		for k := range line {
			if key := differing(funcs, i, k); key != "" && params[key] == "" {
				params[key] = fmt.Sprintf("P%d", len(order)+1)
				order = append(order, key)
			}
		}
	}
	if len(order) > mostDifferences {
		return false
	}
	g.funcs, g.params, g.order = funcs, params, order
	return true
}

// differing returns what funcs have in a field, joined, or "" if they have the same.
func differing(funcs []*asmFunc, line, field int) string {
	var all []string
	same := true
	for _, f := range funcs {
		all = append(all, f.body[line][field])
		same = same && all[0] == f.body[line][field]
	}
	if same {
		return ""
	}
	return strings.Join(all, ", ")
}

// text is a line of the group's functions, with parameters where they differ.
func (g *group) text(i int) string {
	line := append([]string(nil), g.funcs[0].body[i]...)
	for k := range line {
		if key := differing(g.funcs, i, k); key != "" {
			line[k] = g.params[key]
		}
	}
	return strings.TrimSpace(line[0] + " " + strings.Join(line[1:], ", "))
}

// macro is the name of the group's macro; "" if it's one function, which has none.
func (g *group) macro() string {
	if len(g.funcs) == 1 {
		return ""
	}
	return g.funcs[0].name + "_BODY"
}

func (g *group) writeMacro(out *bytes.Buffer) {
	if g.macro() == "" {
		return
	}
	var params []string
	for _, key := range g.order {
		params = append(params, g.params[key])
	}
	fmt.Fprintf(out, "\n#define %s(%s)", g.macro(), strings.Join(params, ", "))
	for i := range g.funcs[0].body {
		line := g.text(i)
		if comment, ok := strings.CutPrefix(line, "//"); ok {
			line = "\t/*" + comment + " */" // the other kind would end with the macro
		} else if !strings.HasSuffix(line, ":") {
			line = "\t" + line + ";"
		}
		fmt.Fprintf(out, " \\\n%s", line)
	}
	out.WriteByte('\n')
}

func (g *group) writeFuncs(out *bytes.Buffer) {
	for m, f := range g.funcs {
		fmt.Fprintf(out, "\n%s\n", strings.Join(f.head, "\n"))
		if g.macro() != "" {
			var args []string
			for _, key := range g.order {
				args = append(args, strings.Split(key, ", ")[m])
			}
			fmt.Fprintf(out, "\t%s(%s)\n", g.macro(), strings.Join(args, ", "))
			continue
		}
		for i := range f.body {
			line := g.text(i)
			if !strings.HasSuffix(line, ":") {
				line = "\t" + line
			}
			fmt.Fprintln(out, line)
		}
	}
}
