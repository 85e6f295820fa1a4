package source

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// types are those that functions are written for, by their names in the dialect.
var types = func() map[string]dtype.DType {
	m := map[string]dtype.DType{}
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64,
		dtype.Uint8} {
		m[t.Short()] = t
	}
	return m
}()

var (
	// called are calls of operations, f32_gelu(, and of the dialect's functions, t_f32_max(.
	called = regexp.MustCompile(`\b(t_)?(f32|f64|i8|i16|i32|i64|u8)_(\w+)\(`)
	// ofT are the names in the dialect's files that belong to their type T.
	ofT = regexp.MustCompile(`\b(t_\w+|T_\w+|TABLE|TABLE_ARGUMENT|PI|T)\b`)
	// tables are arrays of such a file.
	tables = regexp.MustCompile(`\bTABLE (\w+)\[`)
	// later is a function of one of an operation's results behind its first: frexp_1.
	later = regexp.MustCompile(`^(\w+)_([1-9])$`)
	// files of the dialect, by what a text has that uses them.
	files = []struct{ name, by string }{{"philox", "philox("}, {"atomics", "atomic_add_"}, {"float8", "_f8e"}}
)

// instance is a file of the dialect for one type: its functions t_max and so on are t_f32_max.
func instance(file string, t dtype.DType) string {
	for _, m := range tables.FindAllStringSubmatch(file, -1) {
		file = regexp.MustCompile(`\b`+m[1]+`\b`).ReplaceAllString(file, "t_"+m[1])
	}
	return ofT.ReplaceAllStringFunc(file, func(name string) string {
		switch {
		case name == "T":
			return t.Short()
		case strings.HasPrefix(name, "t_"):
			return "t_" + t.Short() + "_" + name[2:]
		}
		return t.Short() + "_" + name
	})
}

// functionsOf writes the functions that a text calls, in the order of their names.
func functionsOf(source string, lanes bool) (string, error) {
	wanted := map[dtype.DType][]string{}
	for _, m := range called.FindAllStringSubmatch(source, -1) {
		t := types[m[2]]
		if m[1] == "" && m[3] == "bits" {
			continue // f32_bits and f64_bits are the dialect's
		}
		names := wanted[t]
		if m[1] == "" && !slices.Contains(names, m[3]) {
			names = append(names, m[3])
		}
		wanted[t] = names
	}
	order := slices.Sorted(maps.Keys(wanted))
	if k := slices.Index(order, dtype.Float32); k >= 0 && lanes { // the last, as its exp hides that of other types
		order = append(slices.Delete(order, k, k+1), dtype.Float32)
	}
	var all text.Writer
	for _, file := range files {
		if strings.Contains(source, file.by) {
			all.Dialect(file.name)
		}
	}
	for _, t := range order {
		var w text.Writer
		if t == dtype.Float32 && lanes {
			w.Line("#define EXP_OF_LANES")
		}
		names := slices.Sorted(slices.Values(wanted[t]))
		dialect := map[bool]string{true: "math", false: "integer"}[t.IsFloating()]
		w.Dialect(dialect)
		var shared text.Writer // of all special functions
		shared.Dialect("special/tables")
		written := map[string]bool{"": true}
		for _, name := range names {
			of, result := name, 0
			if m := later.FindStringSubmatch(name); m != nil {
				of, result = m[1], int(m[2][0]-'0')
			}
			o, ok := ops.Named(of)
			if !ok || o.Expression(t) == "" || o.Results() <= result || o.Integers != 0 {
				return "", fmt.Errorf("kernel: there is no function %s_%s", t.Short(), name)
			}
			var special text.Writer
			ops.Functions(&special, of)
			own, uses := strings.CutPrefix(special.String(), shared.String())
			for _, text := range []string{map[bool]string{true: shared.String()}[uses], own} {
				if !written[text] {
					written[text] = true
					w.WriteString(text)
				}
			}
			w.Line("%s", function(o, t, name, result))
		}
		if t == dtype.Float32 && lanes {
			w.Line("#undef EXP_OF_LANES\n#undef exp")
		}
		all.WriteString(instance(w.String(), t))
	}
	return all.String(), nil
}

// function is an operation's of the table, for one of its results: of its inputs, and then of its numbers.
func function(o *ops.Op, t dtype.DType, name string, number int) string {
	var params []string
	for k := range o.Ins {
		params = append(params, fmt.Sprintf("T %c", 'a'+k))
	}
	for k := range o.Numbers {
		params = append(params, fmt.Sprintf("T s%d", k))
	}
	result := "T"
	if o.Rule == ops.Truth {
		result = "int"
	}
	return fmt.Sprintf("DEVICE %s %s_%s(%s) { return (%s)(%s); }", result, t.Short(), name,
		strings.Join(params, ", "), result, strings.Split(o.Expression(t), ";")[number])
}
