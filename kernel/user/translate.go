package user

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// userTypes are C++'s names of types that a text may use besides its own, and the dialect's.
var userTypes = map[string]string{
	"bool": "bool", "char": "i8", "signed char": "i8", "unsigned char": "u8", "short": "i16", "unsigned short": "u16",
	"int": "i32", "unsigned": "u32", "unsigned int": "u32", "long": "i64", "unsigned long": "u64", "long long": "i64",
	"unsigned long long": "u64", "size_t": "u64", "float": "f32", "double": "f64",
	"int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64",
	"uint8_t": "u8", "uint16_t": "u16", "uint32_t": "u32", "uint64_t": "u64",
}

// userMath are C++'s mathematical functions with their numbers of arguments. C++ chooses among functions of one name by
// the types of arguments, so that max(x, 0) is one of x's type. OpenCL C has no such conversions, so that a text's
// calls are of functions of T alone.
var userMath = map[string]int{
	"exp": 1, "exp2": 1, "exp10": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sqrt": 1, "rsqrt": 1,
	"cbrt": 1, "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1,
	"asinh": 1, "acosh": 1, "atanh": 1, "erf": 1, "erfc": 1, "lgamma": 1, "tgamma": 1, "floor": 1, "ceil": 1,
	"trunc": 1, "round": 1, "rint": 1, "fabs": 1, "abs": 1, "isnan": 1, "isinf": 1, "isfinite": 1, "signbit": 1,
	"pow": 2, "fmod": 2, "remainder": 2, "atan2": 2, "hypot": 2, "copysign": 2, "nextafter": 2, "fdim": 2, "fmin": 2,
	"fmax": 2, "min": 2, "max": 2, "fma": 3,
}

// userWords are identifiers of C++ that OpenCL C has as its own words.
var userWords = strings.Fields("half kernel global local constant private generic pipe quad complex imaginary " +
	"uniform uchar ushort uint ulong vector image read_only write_only read_write this")

// translation makes the dialect of a user's text.
type translation struct {
	user    *user
	compute dtype.DType

	math []string // functions that are called
}

// write writes the functions in the dialect, behind the mathematical functions that they call.
func (t *translation) write(w *text.Writer) error {
	var functions text.Writer
	for _, f := range t.user.functions {
		t.function(&functions, f)
	}
	for _, name := range t.math {
		w.Line("%s", t.mathFunction(name))
	}
	w.WriteString(functions.String())
	return nil
}

// mathFunction is a function of T. Those of integers with fractions are computed in f32.
func (t *translation) mathFunction(name string) string {
	args := []string{"a", "b", "c"}[:userMath[name]]
	typ, result, value := "T", "T", fmt.Sprintf("%s(%s)", name, strings.Join(args, ", "))
	whole := !t.compute.IsFloating() && !t.compute.IsComplex()
	switch {
	case name == "max", name == "fmax" && whole:
		value = "a < b ? b : a"
	case name == "min", name == "fmin" && whole:
		value = "b < a ? b : a"
	case (name == "abs" || name == "fabs") && whole:
		value = "a < 0 ? -a : a"
	case name == "abs":
		value = "fabs(a)"
	case name == "pow" && whole:
		value = "t_pow(a, b)"
	case name == "rsqrt":
		value = "1 / sqrt(a)"
	}
	if strings.HasPrefix(value, name+"(") && whole || name == "rsqrt" && whole {
		typ, result = "f32", "f32"
	}
	if strings.HasPrefix(name, "is") || name == "signbit" {
		result, value = "int", value+" != 0"
	}
	for k := range args {
		args[k] = typ + " " + args[k]
	}
	return fmt.Sprintf("DEVICE %s math_%s(%s) { return %s; }", result, name, strings.Join(args, ", "), value)
}

// function writes a function. References are pointers there: a macro of the function's name passes addresses.
func (t *translation) function(w *text.Writer, f *function) {
	var params, names, args []string
	for k, p := range f.params {
		typ, name := t.typeOf(f, p.typ), t.identifier(p.name)
		names = append(names, fmt.Sprintf("p%d", k))
		if p.ref {
			typ += " *"
			args = append(args, fmt.Sprintf("&(p%d)", k))
		} else {
			typ += " "
			args = append(args, names[k])
		}
		params = append(params, typ+name)
	}
	name := "user_" + f.name
	if slices.ContainsFunc(f.params, func(p param) bool { return p.ref }) {
		w.Line("#define %[1]s(%[2]s) %[1]s_of(%[3]s)", name, strings.Join(names, ", "), strings.Join(args, ", "))
		name += "_of"
	}
	w.Line("DEVICE %s %s(%s) {%s}", t.typeOf(f, f.result), name, strings.Join(params, ", "), t.body(f))
}

// typeOf is a type of a text in the dialect.
func (t *translation) typeOf(f *function, name string) string {
	switch {
	case name == f.typ && name != "", name == "auto":
		return "T"
	case name == "bool" || name == "void":
		return name
	}
	return userTypes[name]
}

func (t *translation) identifier(name string) string {
	if slices.Contains(userWords, name) {
		return name + "_"
	}
	return name
}

// body is a function's, token by token.
func (t *translation) body(f *function) string {
	var b strings.Builder
	tokens := f.body
	near := func(i, step int) (token, int) { // the next one that isn't space
		for i += step; i >= 0 && i < len(tokens); i += step {
			if tokens[i].kind != ' ' {
				return tokens[i], i
			}
		}
		return token{}, i
	}
	for i := 0; i < len(tokens); i++ {
		x := tokens[i]
		next, at := near(i, 1)
		before, _ := near(i, -1)
		switch {
		case x.text == "::":
		case x.kind == 'n' && t.fraction(x.text):
			b.WriteString(t.literal(x.text))
		case x.kind != 'i' || before.text == "." || before.text == "->":
			b.WriteString(x.text)
		case next.text == "::" && slices.Contains([]string{"std", "at", "c10"}, x.text):
			i = at
		case x.text == "static_cast" && next.text == "<":
			typ, end := t.castType(f, tokens, at)
			b.WriteString("(" + typ + ")")
			i = end
		case x.text == "constexpr":
			b.WriteString("const")
		case t.typeOf(f, x.text) != "" && x.text != "void":
			word := t.typeOf(f, x.text)
			if _, plain := userTypes[x.text]; plain { // it may have several words
				word, i = t.words(tokens, i)
				next, _ = near(i, 1)
			}
			if next.text == "(" { // T(x)
				word = "(" + word + ")"
			}
			b.WriteString(word)
		case next.text == "(" || next.text == "<":
			end := i
			if next.text == "<" { // of a template
				typ, close := t.castType(f, tokens, at)
				if after, _ := near(close, 1); typ != "T" || after.text != "(" {
					b.WriteString(t.named(f, x.text))
					continue
				}
				end = close
			}
			b.WriteString(t.called(x.text))
			i = end
		default:
			b.WriteString(t.named(f, x.text))
		}
	}
	return b.String()
}

// words joins a type of several words from a place on, and returns it with its last token.
func (t *translation) words(tokens []token, from int) (string, int) {
	name, last := tokens[from].text, from
	for i := from + 1; i < len(tokens); i++ {
		if tokens[i].kind == ' ' {
			continue
		}
		if userTypes[name+" "+tokens[i].text] == "" {
			break
		}
		name, last = name+" "+tokens[i].text, i
	}
	return userTypes[name], last
}

// castType is the type between < and >, from a place on, and the place of >.
func (t *translation) castType(f *function, tokens []token, open int) (string, int) {
	for i := open + 1; i < len(tokens); i++ {
		if tokens[i].text == ">" {
			name := strings.Join(strings.Fields(joined(tokens[open+1:i])), " ")
			if typ := t.typeOf(f, name); typ != "" {
				return typ, i
			}
			return name, i
		}
		if tokens[i].kind == 'p' {
			break
		}
	}
	return "", open
}

// called is a function's name in a call.
func (t *translation) called(name string) string {
	for _, f := range t.user.functions {
		if f.name == name {
			return "user_" + name
		}
	}
	if _, ok := userMath[name]; !ok && strings.HasSuffix(name, "f") { // expf
		if _, ok := userMath[strings.TrimSuffix(name, "f")]; ok {
			name = strings.TrimSuffix(name, "f")
		}
	}
	if _, ok := userMath[name]; !ok {
		return name
	}
	if !slices.Contains(t.math, name) {
		t.math = append(t.math, name)
	}
	return "math_" + name
}

// named is an identifier that isn't called.
func (t *translation) named(f *function, name string) string {
	for _, p := range f.params {
		if p.ref && p.name == name {
			return "(*" + t.identifier(name) + ")"
		}
	}
	return t.identifier(name)
}

// fraction reports whether a literal is of double, which is T here if T has fractions.
func (t *translation) fraction(number string) bool {
	return (t.compute.IsFloating() || t.compute.IsComplex()) && !isHex(number) && strings.ContainsAny(number, ".eE") &&
		!strings.ContainsAny(number, "fFlL")
}

func (t *translation) literal(number string) string { return "((R)" + number + ")" }
