package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/capi/kernels"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

// constant is one enumerator.
type constant struct {
	Name    string
	Value   int
	Comment string
}

// enumerators are the lines of an enum, with the comments in one column.
func enumerators(list []constant) string {
	var b strings.Builder
	width := 0
	for _, c := range list {
		width = max(width, len(fmt.Sprint(c.Name, c.Value)))
	}
	for _, c := range list {
		fmt.Fprintf(&b, "\t%s = %d,", c.Name, c.Value)
		if c.Comment != "" {
			fmt.Fprintf(&b, "%s/* %s */", strings.Repeat(" ", width-len(fmt.Sprint(c.Name, c.Value))+1), c.Comment)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// header returns the text of chorus.h with its regions written anew.
func header(text string) (string, error) {
	var dtypes, ops, reds []constant
	for _, d := range dtype.All() {
		dtypes = append(dtypes, constant{"CHORUS_" + strings.ToUpper(d.String()), int(d), fmt.Sprintf("%d byte%s", d.Size(),
			plural(d.Size()))})
	}
	for _, k := range backend.Kinds() {
		ops = append(ops, constant{"CHORUS_" + strings.ToUpper(k.String()), int(k), fields(k.Operation())})
	}
	for k := backend.SumKind; k <= backend.PremulSumKind; k++ {
		reds = append(reds, constant{"CHORUS_" + strings.ToUpper(k.String()), int(k), reductions[k]})
	}
	for _, region := range [][2]string{{"types of elements", enumerators(dtypes)}, {"operations", enumerators(ops)},
		{"reductions", enumerators(reds)}, {"kernels", kernelKinds()}} {
		var err error
		if text, err = replaced(text, region[0], region[1]); err != nil {
			return "", err
		}
	}
	if !strings.Contains(text, "\n#define CHORUS_SIGNAL_SLOTS "+strconv.Itoa(backend.SignalSlots)+"\n") {
		return "", fmt.Errorf("CHORUS_SIGNAL_SLOTS isn't %d", backend.SignalSlots)
	}
	return text, nil
}

// replaced is a text with other lines in a region, which lies between the comments "gen: name" and "end".
func replaced(text, name, lines string) (string, error) {
	before, rest, ok := strings.Cut(text, "/* gen: "+name+" */\n")
	_, after, ends := strings.Cut(rest, "\t/* end */\n")
	if !ok || !ends {
		return "", fmt.Errorf("there is no region %q", name)
	}
	return before + "/* gen: " + name + " */\n" + lines + "\t/* end */\n" + after, nil
}

// columns is how long lines of comments are.
const columns = 112

// kernelKinds are the kinds of kernels, each below its operations and their arguments.
func kernelKinds() string {
	var b strings.Builder
	for i, k := range kernels.Kinds() {
		var lines []string
		for _, r := range k.Rows {
			lines = append(lines, takes(&r))
		}
		if k.Note != "" {
			lines = append(lines, k.Note)
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("\t/* " + strings.Join(wrapped(lines), "\n\t * ") + " */\n")
		fmt.Fprintf(&b, "\tCHORUS_KERNEL_%s = %d,\n", strings.ToUpper(k.Name), k.Number)
	}
	return b.String()
}

// wrapped breaks lines of a comment that are too long.
func wrapped(lines []string) (all []string) {
	for _, text := range lines {
		line := ""
		for _, word := range strings.Fields(text) {
			if line != "" && len(line)+len(word) > columns {
				all, line = append(all, line), "   "
			} else if line != "" {
				line += " "
			}
			line += word
		}
		all = append(all, line)
	}
	return all
}

// takes says what a row's operations take: results; inputs; numbers; integers; fields of chorus_kernel that count.
func takes(r *kernels.Row) string {
	text, separator := strings.Join(r.Names, ", "), ": "
	if r.All != "" {
		text = r.All
	}
	for _, part := range []kernels.Part{kernels.Result, kernels.Input, kernels.Number, kernels.Integer, kernels.None} {
		var names []string
		for _, f := range r.Fields {
			switch name := f.Name; {
			case f.Part != part || part == kernels.None && name == "op":
			case f.List():
				names = append(names, name+"...")
			case f.Optional:
				names = append(names, "["+name+"]")
			default:
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			text += separator + labels[part] + strings.Join(names, ", ")
			separator = "; "
		}
	}
	return text
}

// labels stand before the arguments of a part.
var labels = [...]string{kernels.None: "with ", kernels.Result: "", kernels.Input: "", kernels.Number: "numbers ", kernels.Integer: "integers "}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
