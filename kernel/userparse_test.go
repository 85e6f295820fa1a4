package kernel

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
)

// A text without a function is refused as other texts are.
func TestUserWithoutFunction(t *testing.T) {
	for _, text := range []string{"", " \n", "// template\n", "/* template", "/*/ template", "/**/"} {
		if err := CheckUser(text); err == nil || !strings.Contains(err.Error(), "there is none") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A comment's begin isn't its end.
func TestUserComment(t *testing.T) {
	const text = "template <typename T> T f(T x) {\n/*/ return 1; /**/ return x; }"
	must(t, CheckUser(text))
	if got := joined(tokensOf(text)); strings.Contains(got, "1") || strings.Count(got, "\n") != 1 {
		t.Errorf("without comments: %q", got)
	}
}

// A panic within a generator, here by specs of more types than they have room for, is an error.
func TestContain(t *testing.T) {
	caught := 0
	for f := range families {
		_, err := Spec{Family: f, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 200, Dims: 200}.Source()
		if err != nil && strings.Contains(err.Error(), "a bug in") {
			caught++
		}
	}
	if caught == 0 {
		t.Error("no generator has panicked")
	}
}

// FuzzUser reads any text, and generates the kernel of one that it takes.
func FuzzUser(f *testing.F) {
	for _, text := range []string{"", "// template\n", "/*/", "template <typename T> T f(T x, T y) { return x + y; }",
		"template <typename T>\nvoid f(const T x, T& s, T& d) { s = std::exp(x); d = static_cast<unsigned long>(x) * 1.5e-3; }",
		"int g(int x) { return x << 2; } template <class T> T f(T x, bool y) { return y ? T(g(x)) : max<T>(x, '\\''); }",
		"template <typename T> T f(T x) { return x", "template < T f(", "template <typename T> T f(T) {}",
		"template <typename T> T f(T x) { return static_cast< ", "template <typename T> T f(T x) { return x.y->z::w(\"\\"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseUser(text)
		if err != nil {
			if strings.Contains(err.Error(), "a bug in") {
				t.Fatal(err)
			}
			return
		}
		e := u.entry()
		if e.inputs() > MaxInputs || e.results() > MaxOperands-MaxInputs {
			return
		}
		for _, compute := range []dtype.DType{dtype.Float32, dtype.Int32, dtype.Complex64} {
			for ins := range e.inputs() + 1 {
				s := Spec{Family: ElementwiseFamily, Op: text, Compute: compute, Block: threads, Ins: uint8(ins),
					Form: uint8(e.inputs() - ins), Outs: uint8(e.results())}
				for k := range ins + e.results() {
					s.Types[k] = compute
				}
				if err := elementwiseCheck(s); err != nil {
					t.Fatalf("%q is taken, and its call isn't: %v", text, err)
				}
				if _, err := families[s.Family].generate(s); err != nil {
					t.Fatalf("%q is taken, and has no kernel: %v", text, err)
				}
			}
		}
	})
}
