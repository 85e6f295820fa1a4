package user

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Operands is how many inputs and numbers the operation of a text has, and how many results. An error says what is
// wrong with the text, as far as that can be said before it's compiled.
func Operands(text string) (inputs, results int, err error) {
	u, err := userOf(text)
	if err != nil {
		return 0, 0, err
	}
	return u.entry().inputs(), u.entry().results(), nil
}

// user is a user's text, as torch.cuda.jiterator takes it: functions, of which the last one is the operation.
//
//	template <typename T> T f(T x, T y, T alpha) { return x + alpha * y; }
//	template <typename T> void f(T x, T y, T& sum, T& difference) { sum = x + y; difference = x - y; }
type user struct {
	functions []*function
}

// function is one of them.
type function struct {
	name   string
	typ    string // the name of T, empty for a function that's no template
	result string // the name of its result's type
	params []param
	body   []token
}

type param struct {
	typ, name string
	ref       bool // it's written to
}

func (u *user) entry() *function { return u.functions[len(u.functions)-1] }

// inputs is how many inputs and numbers the operation has. Results stand behind them.
func (f *function) inputs() int {
	if n := slices.IndexFunc(f.params, func(p param) bool { return p.ref }); n >= 0 {
		return n
	}
	return len(f.params)
}

// results is how many the operation has.
func (f *function) results() int { return max(1, len(f.params)-f.inputs()) }

// users are the texts that were read, each as *user or error.
var users sync.Map

// userOf reads a text, once.
func userOf(text string) (*user, error) {
	read, ok := users.Load(text)
	if !ok {
		u, err := parseUser(text)
		if err != nil {
			read, _ = users.LoadOrStore(text, err)
		} else {
			read, _ = users.LoadOrStore(text, u)
		}
	}
	if u, ok := read.(*user); ok {
		return u, nil
	}
	return nil, read.(error)
}

// NumberType is the type of the call's number k, behind so many inputs: that of its parameter.
func NumberType(op string, ins, k int, compute dtype.DType) (_ dtype.DType, truth bool) {
	u, err := userOf(op)
	if err != nil {
		return compute, false
	}
	f := u.entry()
	switch p := f.params[ins+k]; {
	case p.typ == f.typ:
		return compute, false
	case userTypes[p.typ] == "f32":
		return dtype.Float32, false
	case userTypes[p.typ] == "f64":
		return dtype.Float64, false
	default:
		return dtype.Int64, p.typ == "bool"
	}
}

// Call writes a text's functions and returns the statement that calls the last one, with results r0, r1 and so on.
func Call(w *text.Writer, s text.Spec) (string, error) {
	u, err := userOf(s.Op)
	if err != nil {
		return "", err
	}
	t := &translation{user: u, compute: s.Compute}
	if err := t.write(w); err != nil {
		return "", err
	}
	f := u.entry()
	var args, results []string
	for k := range int(s.Ins) {
		args = append(args, string(rune('a'+k)))
	}
	for k := range int(s.Form) {
		if typ, _ := NumberType(s.Op, int(s.Ins), k, s.Compute); typ == s.Compute {
			args = append(args, fmt.Sprintf("s%d", k))
		} else {
			w.Uses(typ)
			args = append(args, fmt.Sprintf("number%d", k))
		}
	}
	for k := range int(s.Outs) {
		results = append(results, fmt.Sprintf("r%d", k))
	}
	if f.result == "void" {
		return fmt.Sprintf("T %s; user_%s(%s);", strings.Join(results, ", "), f.name,
			strings.Join(append(args, results...), ", ")), nil
	}
	call := fmt.Sprintf("user_%s(%s)", f.name, strings.Join(args, ", "))
	if f.result != f.typ {
		call = text.Converted(s.Compute, resultTypes[userTypes[f.result]], call)
	}
	return "T r0 = " + call + ";", nil
}

// resultTypes are the dialect's types that a function may return besides T.
var resultTypes = func() map[string]dtype.DType {
	types := map[string]dtype.DType{"bool": dtype.Bool}
	for _, t := range []dtype.DType{dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64, dtype.Uint8, dtype.Float32,
		dtype.Float64} {
		types[t.Short()] = t
	}
	return types
}()

// parseUser reads a text.
func parseUser(source string) (_ *user, err error) {
	defer text.Contain("the parser of users' functions", &err)
	p := &userParser{tokens: tokensOf(source)}
	u := &user{}
	for p.skip(); p.at < len(p.tokens); p.skip() {
		f, err := p.function(source)
		if err != nil {
			return nil, fmt.Errorf("kernel: a user's function: %w", err)
		}
		u.functions = append(u.functions, f)
	}
	if len(u.functions) == 0 {
		return nil, fmt.Errorf("kernel: a user's function: there is none, only white space and comments, in %.60q", source)
	}
	if err := u.entry().check(); err != nil {
		return nil, fmt.Errorf("kernel: a user's function: %w", err)
	}
	return u, nil
}

// check refuses what the operation can't be.
func (f *function) check() error {
	if f.typ == "" {
		return fmt.Errorf("%s, the last function, isn't a template of one type", f.name)
	}
	behind := ""
	for _, p := range f.params {
		switch {
		case p.ref && p.typ != f.typ:
			return fmt.Errorf("result %s of %s is %s, not %s", p.name, f.name, p.typ, f.typ)
		case p.ref:
			behind = p.name
		case behind != "":
			return fmt.Errorf("parameter %s of %s stands behind its results", p.name, f.name)
		}
	}
	if _, ok := resultTypes[userTypes[f.result]]; !ok && f.result != f.typ && f.result != "void" {
		return fmt.Errorf("%s returns %s, which isn't converted to %s", f.name, f.result, f.typ)
	}
	if (f.result == "void") == (behind == "") {
		return fmt.Errorf("%s must either return a result or have references for several", f.name)
	}
	return nil
}

// Name is the name of a text's operation.
func Name(text string) string {
	if u, err := userOf(text); err == nil {
		return u.entry().name
	}
	return "user"
}
