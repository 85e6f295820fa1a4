package kernel

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// A user's functions, as the JITerator takes them.
func TestUserFunctions(t *testing.T) {
	c := openCL(t)
	a, b := c.dense(t, dtype.Float32, 300), c.dense(t, dtype.BFloat16, 300)
	x, y := c.dense(t, dtype.Float32, 300), c.dense(t, dtype.Float64, 300)
	for i := range 2 {
		z := make([]complex128, 300)
		for k := range z {
			z[k] = complex(float64(k*(i+3)%17)/4, 0)
		}
		[]*array{a, b}[i].set(z)
	}
	chain := `template <typename scalar_t> scalar_t chain(scalar_t x, scalar_t y, scalar_t alpha) {
		scalar_t z = static_cast<scalar_t>(x * y);
		if (z > alpha) { return std::exp(-z); }
		return std::max(z, y) + alpha;
	}`
	pair := `template <typename T>
	void pair(const T x, T y, T& sum, T& difference) { sum = x + y; difference = x - y; }`
	var p Plan
	must(t, p.Elementwise(chain, dtype.Float32, []Operand{x.Operand}, []Operand{a.Operand, b.Operand}, Float(2.5)))
	must(t, c.run(&p))
	as, bs := a.elements(), b.elements()
	for i, v := range x.elements() {
		z := as[i] * bs[i]
		want := max(real(z), real(bs[i])) + 2.5
		if real(z) > 2.5 {
			want = math.Exp(-real(z))
		}
		if !near(real(v), want, 1e-6) {
			t.Fatalf("chain of %v and %v is %v, want %v", as[i], bs[i], v, want)
		}
	}
	p.Reset()
	must(t, p.Elementwise(pair, dtype.Float32, []Operand{x.Operand, y.Operand}, []Operand{a.Operand, b.Operand}))
	must(t, c.run(&p))
	for i, v := range x.elements() {
		if v != as[i]+bs[i] || y.elements()[i] != as[i]-bs[i] {
			t.Fatalf("pair of %v and %v is %v and %v", as[i], bs[i], v, y.elements()[i])
		}
	}
	for text, want := range map[string]string{
		"template <typename T> T f(T x { return x; }":                     "must have the form",
		"template <typename T> string f(T x) { return 1; }":               "returns string",
		"template <typename T> T f(string x) { return x; }":               `parameter "string x"`,
		"template <typename T, typename U> T f(T x) { return x; }":        "a template has one type",
		"template <typename T> T g(T x) { return x; } int f(int x) { }":   "isn't a template of one type",
		"template <typename T> void f(T x, int& y) { y = x; }":            "result y of f is int",
		"template <typename T> unsigned f(T x) { return x; }":             "which isn't converted",
		"template <typename T> T f() { return 1; }":                       `parameter ""`,
		"template <typename T> void f(T x) { }":                           "references for several",
		"template <typename T> void f(T& x, T y) { }":                     "stands behind its results",
		"template <typename T> T f(T x) { return x; ":                     "braces",
		"template <typename T> T f(T x, T y, T z, T w) { return x; }":     "the call has 1, 0 and 1",
		"template <typename T> T f(T x) {\n\treturn x + not_there;\n}":    ">",
		"template <typename T> void f(T x, T& y, T& z) { y = x; z = x; }": "has 2 results",
	} {
		p.Reset()
		err := p.Elementwise(text, dtype.Float32, []Operand{x.Operand}, []Operand{a.Operand})
		if err == nil {
			err = c.run(&p)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if strings.Contains(text, "not_there") && !strings.Contains(fmt.Sprint(err), "return x + not_there;") {
			t.Errorf("the error has no line of the source: %v", err)
		}
	}
}

// userExamples are texts of one input and a number, and what they are for numbers with and without fractions.
var userExamples = []struct {
	text           string
	number         *Number
	floats, wholes func(x float64) float64
}{
	{`template <typename T> T f(T x, T a) { return T(2) * x + static_cast< T >(a) - (T)1; }`, Int(3),
		func(x float64) float64 { return 2*x + 2 }, func(x float64) float64 { return 2*x + 2 }},
	{`template <typename T> T f(T x, T a) { return ::max(x, 1) + std::min(a, x) + std::abs(x); }`, Int(2),
		func(x float64) float64 { return max(x, 1) + min(2, x) + math.Abs(x) },
		func(x float64) float64 { return max(x, 1) + min(2, x) + math.Abs(x) }},
	{`// Comments } of both { kinds.
	template <class scalar_t> scalar_t half(scalar_t x) { return x / 2; } /* } */
	template <class scalar_t> scalar_t twice(const scalar_t& x) { return half<scalar_t>(x) + half(x); }
	template <class scalar_t> scalar_t f(scalar_t x, bool up) { return up ? twice(x) : -twice<scalar_t>(x); }`, Int(0),
		func(x float64) float64 { return -x }, func(x float64) float64 { return -2 * math.Trunc(x/2) }},
	{`template <typename T> void split(T x, T& low, T &high) { low = x - 1; high = x + 1; }
	template <typename T> T f(T x, double scale) { T low, high; split(x, low, high); return low * high * scale; }`,
		Float(0.5), func(x float64) float64 { return (x*x - 1) / 2 },
		func(x float64) float64 { return math.Trunc((x*x - 1) / 2) }},
	{`int steps(int n) { int sum = 0; for (int k = 0; k < n; ++k) sum += k; return sum; }
	template <typename T> T f(T x, int64_t n) { auto half = T(steps(n)); return x >= T(0) && x < 3 ? half : x; }`, Int(5),
		func(x float64) float64 { return pick(x >= 0 && x < 3, 10, x) },
		func(x float64) float64 { return pick(x >= 0 && x < 3, 10, x) }},
	{`template <typename T> bool f(T x, float least) { return x > least; }`, Float(0.5),
		func(x float64) float64 { return pick(x > 0.5, 1, 0) }, func(x float64) float64 { return pick(x > 0.5, 1, 0) }},
	{`template <typename T> void f(T x, T a, T& out) { const T y = std::pow(x, 2); out = y * a; }`, Int(3),
		func(x float64) float64 { return 3 * x * x }, func(x float64) float64 { return 3 * x * x }},
	{`template <typename T> T f(T x, T a) { return x + 0.5 + expf(0.0f) * a; }`, Int(1),
		func(x float64) float64 { return x + 1.5 }, func(x float64) float64 { return math.Trunc(x + 1.5) }},
}

func pick(which bool, a, b float64) float64 {
	if which {
		return a
	}
	return b
}

// A user's text may have some of C++ that C lacks.
func TestUserTexts(t *testing.T) {
	c := openCL(t)
	for _, kind := range []dtype.DType{dtype.Float32, dtype.Int32} {
		in, out := c.dense(t, kind, 9), c.dense(t, kind, 9)
		z := make([]complex128, 9)
		for k := range z {
			z[k] = complex(float64(k-4), 0)
			if kind == dtype.Float32 {
				z[k] += 0.25
			}
		}
		in.set(z)
		for k, e := range userExamples {
			if !sampled(k, 6, 2) {
				continue
			}
			var p Plan
			must(t, p.Elementwise(e.text, kind, []Operand{out.Operand}, []Operand{in.Operand}, e.number))
			must(t, c.run(&p))
			want := e.floats
			if kind == dtype.Int32 {
				want = e.wholes
			}
			for k, v := range out.elements() {
				if w := want(real(z[k])); !near(real(v), w, 1e-6) {
					t.Errorf("%v: %s of %v is %v, want %v", kind, e.text, real(z[k]), real(v), w)
				}
			}
		}
	}
}

// As many operands as there may be.
func TestUserOperands(t *testing.T) {
	c := openCL(t)
	var params, results, body []string
	var ins, outs []Operand
	var got []*array
	for k := range text.MaxInputs {
		in, out := c.dense(t, dtype.Float32, 3, 700), c.dense(t, dtype.Float32, 3, 700)
		z := make([]complex128, 3*700)
		for i := range z {
			z[i] = complex(float64(i*k%97), 0)
		}
		in.set(z)
		params, results = append(params, fmt.Sprintf("T x%d", k)), append(results, fmt.Sprintf("T& y%d", k))
		body = append(body, fmt.Sprintf("y%d = x%d + x0 + %d;", k, k, k))
		view := in.Operand
		view.Sizes, view.Strides = []int{3, 350}, []int{700, 2}
		ins = append(ins, view)
		view = out.Operand
		view.Sizes, view.Strides = []int{3, 350}, []int{700, 1}
		outs, got = append(outs, view), append(got, out)
	}
	text := "template <typename T> void f(" + strings.Join(append(params, results...), ", ") + ") {" +
		strings.Join(body, " ") + "}"
	var p Plan
	must(t, p.Elementwise(text, dtype.Float32, outs, ins))
	must(t, c.run(&p))
	for k, a := range got {
		e := a.elements()
		for i := range 3 * 350 {
			at := i/350*700 + i%350
			from := i/350*700 + i%350*2
			if want := float64(from*k%97 + k); real(e[at]) != want {
				t.Fatalf("result %d, element %d is %v, want %v", k, i, e[at], want)
			}
		}
	}
}
