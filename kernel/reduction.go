package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Reduction is an operation on many elements. Its code is of an accumulator a, another one b, an element x of the type
// T that's computed in, and the element's number i among those reduced, in the order of their indexes. R is T, or the
// type of the parts of a complex T.
type Reduction struct {
	Name    string
	Numbers int  // of a call: s0, s1
	Needs   bool // at least one element

	fields string // of the accumulator
	helper string // a function of accumulators
	init   string // statements
	step   string
	join   string
	done   []outcome

	ordered     bool // the elements' numbers matter
	real, whole bool // defined for floating-point types, and for integers and bool
	complex     *Reduction
}

// outcome is a result: an expression of a, of the number n of elements, and of the call's numbers.
type outcome struct {
	kind kind
	expr string
}

// kind says what type an expression has.
type kind uint8

const (
	element kind = iota // T
	part                // R
	index               // i64
	truth               // int
)

func (k kind) dtype(compute dtype.DType) dtype.DType {
	switch k {
	case element:
		return compute
	case part:
		return text.Real(compute)
	case truth:
		return dtype.Int32
	}
	return dtype.Int64
}

// extreme is a reduction to the largest or smallest element, NaN before others, and the first of equal ones.
func extreme(name, sign string, done ...outcome) Reduction {
	return Reduction{Name: name, Needs: true, fields: "T v; i64 i;", init: "a.v = 0; a.i = -1;",
		step: "A b; b.v = x; b.i = i; if (r_before(b, a)) a = b;", join: "if (r_before(b, a)) a = b;", done: done,
		helper: fmt.Sprintf(before, sign), ordered: true, real: true, whole: true}
}

// before is a function that says whether accumulator b stands before a.
const before = `DEVICE int r_before(A b, A a) {
	if (b.i < 0 || a.i < 0)
		return b.i >= 0;
	if (b.v != b.v || a.v != a.v)
		return b.v != b.v && (a.v == a.v || b.i < a.i);
	return b.v %s a.v || (b.v == a.v && b.i < a.i);
}`

// total is one that adds parts.
func total(name, step string, kind kind, done string) Reduction {
	return Reduction{Name: name, fields: "R v;", init: "a.v = 0;", step: "a.v += " + step + ";", join: "a.v += b.v;",
		done: []outcome{{kind, done}}, real: true, whole: true}
}

// moments is a reduction by Welford's method.
func moments(name string, done ...outcome) Reduction {
	r := Reduction{Name: name, Numbers: 1, fields: "i64 n; T mean; R m2;", init: "a.n = 0; a.mean = 0; a.m2 = 0;",
		step: "T d = x - a.mean; a.n++; a.mean += d / (R)a.n; a.m2 += d * (x - a.mean);",
		join: "if (a.n == 0) return b; if (b.n != 0) { i64 n = a.n + b.n; T d = b.mean - a.mean; " +
			"a.mean += d * ((R)b.n / (R)n); a.m2 += b.m2 + d * d * ((R)a.n * (R)b.n / (R)n); a.n = n; }",
		helper: "DEVICE T r_mean(A a) { return a.n == 0 ? (T)NAN : a.mean; }", done: done, real: true}
	r.complex = &Reduction{fields: "i64 n; T mean; R m2, rest;", // of whole words, none of which is without a value
		helper: "DEVICE T r_mean(A a) { return a.n == 0 ? c_make((R)NAN, (R)NAN) : a.mean; }",
		init:   "a.n = 0; a.mean = c_make(0, 0); a.m2 = a.rest = 0;",
		step: "T d = c_sub(x, a.mean), e; a.n++; a.mean = c_add(a.mean, c_scale(d, 1 / (R)a.n)); " +
			"e = c_sub(x, a.mean); a.m2 += d.re * e.re + d.im * e.im;",
		join: "if (a.n == 0) return b; if (b.n != 0) { i64 n = a.n + b.n; T d = c_sub(b.mean, a.mean); " +
			"a.mean = c_add(a.mean, c_scale(d, (R)b.n / (R)n)); " +
			"a.m2 += b.m2 + (d.re * d.re + d.im * d.im) * ((R)a.n * (R)b.n / (R)n); a.n = n; }", done: done}
	return r
}

const (
	variance  = "fabs(a.m2) / ((R)a.n > s0 ? (R)a.n - s0 : (R)0)" // a mean that overflows makes it negative
	deviation = "sqrt(" + variance + ")"
	mean      = "r_mean(a)"
)

// reductions are the reductions by their names in ATen.
var reductions = func() []Reduction {
	sum := total("sum", "x", element, "a.v")
	sum.complex = &Reduction{fields: "T v;", init: "a.v = c_make(0, 0);", step: "a.v = c_add(a.v, x);",
		join: "a.v = c_add(a.v, b.v);", done: sum.done}
	average := total("mean", "x", element, "a.v / (R)n")
	average.whole = false
	average.complex = &Reduction{fields: "T v;", init: "a.v = c_make(0, 0);", step: "a.v = c_add(a.v, x);",
		join: "a.v = c_add(a.v, b.v);", done: []outcome{{element, "c_make(a.v.re / (R)n, a.v.im / (R)n)"}}}
	prod := Reduction{Name: "prod", fields: "T v;", init: "a.v = 1;", step: "a.v *= x;", join: "a.v *= b.v;",
		done: []outcome{{element, "a.v"}}, real: true, whole: true,
		complex: &Reduction{fields: "T v;", init: "a.v = c_make(1, 0);", step: "a.v = c_mul(a.v, x);",
			join: "a.v = c_mul(a.v, b.v);", done: []outcome{{element, "a.v"}}}}
	all := Reduction{Name: "all", fields: "int v;", init: "a.v = 1;", step: "a.v = a.v && x != 0;",
		join: "a.v = a.v && b.v;", done: []outcome{{truth, "a.v"}}, real: true, whole: true,
		complex: &Reduction{fields: "int v;", init: "a.v = 1;", step: "a.v = a.v && c_true(x);",
			join: "a.v = a.v && b.v;", done: []outcome{{truth, "a.v"}}}}
	exists := Reduction{Name: "any", fields: "int v;", init: "a.v = 0;", step: "a.v = a.v || x != 0;",
		join: "a.v = a.v || b.v;", done: []outcome{{truth, "a.v"}}, real: true, whole: true,
		complex: &Reduction{fields: "int v;", init: "a.v = 0;", step: "a.v = a.v || c_true(x);",
			join: "a.v = a.v || b.v;", done: []outcome{{truth, "a.v"}}}}
	count := Reduction{Name: "count_nonzero", fields: "i64 v;", init: "a.v = 0;", step: "a.v += x != 0;",
		join: "a.v += b.v;", done: []outcome{{index, "a.v"}}, real: true, whole: true,
		complex: &Reduction{fields: "i64 v;", init: "a.v = 0;", step: "a.v += c_true(x);",
			join: "a.v += b.v;", done: []outcome{{index, "a.v"}}}}
	norm := func(name, of, complexOf string, numbers int, done string) Reduction {
		r := total(name, of, part, done)
		r.whole, r.Numbers = false, numbers
		c := r
		c.step = "a.v += " + complexOf + ";"
		r.complex = &c
		return r
	}
	bound := func(name, better, first string) Reduction {
		step := func(x string) string {
			return fmt.Sprintf("R y = %s; if (y != y || y %s a.v) a.v = a.v != a.v ? a.v : y;", x, better)
		}
		r := Reduction{Name: name, fields: "R v;", init: "a.v = " + first + ";", step: step("fabs(x)"),
			join: "if (b.v != b.v || b.v " + better + " a.v) a.v = a.v != a.v ? a.v : b.v;",
			done: []outcome{{part, "a.v"}}, real: true}
		c := r
		c.step = step("c_abs(x)")
		r.complex = &c
		return r
	}
	return []Reduction{
		sum, average, prod, all, exists, count,
		{Name: "nansum", fields: "T v;", init: "a.v = 0;", step: "a.v += x == x ? x : 0;", join: "a.v += b.v;",
			done: []outcome{{element, "a.v"}}, real: true, whole: true},
		{Name: "amax", Needs: true, fields: "T v;", init: "a.v = T_LOWEST;", step: "a.v = t_max(a.v, x);",
			join: "a.v = t_max(a.v, b.v);", done: []outcome{{element, "a.v"}}, real: true, whole: true},
		{Name: "amin", Needs: true, fields: "T v;", init: "a.v = T_HIGHEST;", step: "a.v = t_min(a.v, x);",
			join: "a.v = t_min(a.v, b.v);", done: []outcome{{element, "a.v"}}, real: true, whole: true},
		extreme("argmax", ">", outcome{index, "a.i"}),
		extreme("argmin", "<", outcome{index, "a.i"}),
		extreme("max", ">", outcome{element, "a.v"}, outcome{index, "a.i"}),
		extreme("min", "<", outcome{element, "a.v"}, outcome{index, "a.i"}),
		// Of whole words, as above.
		{Name: "aminmax", Needs: true, fields: "T low, high, any;", init: "a.low = a.high = a.any = 0;",
			step: "A b; b.low = b.high = x; b.any = 1; a = r_join(a, b);",
			join: "if (a.any == 0) return b; if (b.any != 0) { if (a.low == a.low && !(b.low >= a.low)) a.low = b.low; " +
				"if (a.high == a.high && !(b.high <= a.high)) a.high = b.high; }",
			done: []outcome{{element, "a.low"}, {element, "a.high"}}, real: true, whole: true},
		moments("var", outcome{part, variance}),
		moments("std", outcome{part, deviation}),
		moments("var_mean", outcome{part, variance}, outcome{element, mean}),
		moments("std_mean", outcome{part, deviation}, outcome{element, mean}),
		norm("norm0", "x != 0", "c_true(x)", 0, "a.v"),
		norm("norm1", "fabs(x)", "c_abs(x)", 0, "a.v"),
		norm("norm2", "x * x", "x.re * x.re + x.im * x.im", 0, "sqrt(a.v)"),
		norm("norm", "pow(fabs(x), s0)", "pow(c_abs(x), s0)", 1, "pow(a.v, 1 / s0)"),
		bound("norm_inf", ">", "0"),
		bound("norm_neg_inf", "<", "(R)INFINITY"),
		{Name: "logsumexp", fields: "T m, s;", init: "a.m = -(T)INFINITY; a.s = 0;",
			step: "if (x > a.m) { a.s = a.s * exp(a.m - x) + 1; a.m = x; } " +
				"else if (x != -(T)INFINITY) a.s += x == a.m ? (T)1 : exp(x - a.m);",
			join: "if (b.m > a.m) { A c = a; a = b; b = c; } if (b.s != 0) a.s += b.m == a.m ? b.s : b.s * exp(b.m - a.m);",
			done: []outcome{{element, "a.m + log(a.s)"}}, real: true},
	}
}()

// Reductions are all reductions.
func Reductions() []Reduction { return append([]Reduction(nil), reductions...) }

var reductionNames = func() map[string]int {
	m := map[string]int{}
	for k := range reductions {
		m[reductions[k].Name] = k
	}
	return m
}()

// Results is how many there are.
func (r *Reduction) Results() int { return len(r.done) }

// Defined reports whether the reduction can compute in a type.
func (r *Reduction) Defined(compute dtype.DType) bool { return r.of(compute) != nil }

// of is the reduction's code for a type; nil if it isn't defined for it.
func (r *Reduction) of(compute dtype.DType) *Reduction {
	switch {
	case compute.IsComplex():
		return r.complex
	case compute.IsFloating() && r.real, !compute.IsFloating() && r.whole:
		return r
	}
	return nil
}
