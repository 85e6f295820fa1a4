package kernel

import (
	"fmt"
	"regexp"
	"strings"
)

// isUser reports whether an operation is a user's function and not a name of the table.
func isUser(op string) bool { return strings.HasPrefix(strings.TrimSpace(op), "template") }

// function is a user's, as torch.cuda.jiterator takes it:
//
//	template <typename T> T f(T x, T y, T alpha) { return x + alpha * y; }
//	template <typename T> void f(T x, T y, T& sum, T& difference) { sum = x + y; difference = x - y; }
type function struct {
	name    string
	void    bool
	inputs  []string
	results []string // references, of a function without a result
	body    string
}

var (
	userHead = regexp.MustCompile(`^\s*template\s*<\s*(?:typename|class)\s+(\w+)\s*>\s*(\w+)\s+(\w+)\s*\(([^)]*)\)\s*\{`)
	userArg  = regexp.MustCompile(`^(?:const\s+)?(\w+)\s*(&?)\s*(\w+)$`)
	cast     = regexp.MustCompile(`\bstatic_cast\s*<\s*([\w ]+?)\s*>`)
)

// parseUser reads a user's function.
func parseUser(text string) (*function, error) {
	refuse := func(format string, args ...any) (*function, error) {
		return nil, fmt.Errorf("kernel: a user's function: "+format, args...)
	}
	m := userHead.FindStringSubmatch(text)
	if m == nil {
		return refuse("it must have the form `template <typename T> T name(T x, T y) { return ...; }`, and begins with %.60q",
			text)
	}
	typ, f := m[1], &function{name: m[3], void: m[2] == "void"}
	if !f.void && m[2] != typ {
		return refuse("%s returns %s, neither %s nor void", f.name, m[2], typ)
	}
	for _, arg := range strings.Split(m[4], ",") {
		a := userArg.FindStringSubmatch(strings.TrimSpace(arg))
		switch {
		case a == nil || a[1] != typ:
			return refuse("parameter %q of %s isn't of the form `%s name` or `%s& name`", strings.TrimSpace(arg), f.name, typ, typ)
		case a[2] == "&":
			f.results = append(f.results, a[3])
		case len(f.results) > 0:
			return refuse("parameter %s of %s stands behind its results", a[3], f.name)
		default:
			f.inputs = append(f.inputs, a[3])
		}
	}
	if f.void == (len(f.results) == 0) {
		return refuse("%s must either return a result or have references for several", f.name)
	}
	body := text[len(m[0])-1:]
	if strings.Count(body, "{") != strings.Count(body, "}") {
		return refuse("the braces of %s don't match", f.name)
	}
	body = cast.ReplaceAllString(body, "($1)")
	body = strings.ReplaceAll(body, "std::", "")
	if typ != "T" {
		body = regexp.MustCompile(`\b`+typ+`\b`).ReplaceAllString(body, "T")
	}
	f.body = body
	return f, nil
}

// write writes the function, in the dialect. References are pointers there.
func (f *function) write(w *writer) {
	var params []string
	for _, n := range f.inputs {
		params = append(params, "T "+n)
	}
	result := "T"
	if f.void {
		result = "void"
	}
	for _, n := range f.results {
		params = append(params, "T *"+n+"_result")
		w.line("#define %s (*%s_result)", n, n)
	}
	w.line("DEVICE %s user_%s(%s) %s", result, f.name, strings.Join(params, ", "), f.body)
	for _, n := range f.results {
		w.line("#undef %s", n)
	}
}
