package kernel

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
	"github.com/chorus-comms/chorus/kernel/user"
)

// A panic within a generator, here by specs of more types than they have room for, is an error.
func TestContain(t *testing.T) {
	caught := 0
	for _, f := range text.Families() {
		_, err := text.Spec{Family: f, Compute: dtype.Float32, Block: threads, Outs: 1, Ins: 200, Dims: 200}.Source()
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
	for _, source := range []string{"", "// template\n", "/*/", "template <typename T> T f(T x, T y) { return x + y; }",
		"template <typename T>\nvoid f(const T x, T& s, T& d) { s = std::exp(x); d = static_cast<unsigned long>(x) * 1.5e-3; }",
		"int g(int x) { return x << 2; } template <class T> T f(T x, bool y) { return y ? T(g(x)) : max<T>(x, '\\''); }",
		"template <typename T> T f(T x) { return x", "template < T f(", "template <typename T> T f(T) {}",
		"template <typename T> T f(T x) { return static_cast< ", "template <typename T> T f(T x) { return x.y->z::w(\"\\"} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		inputs, results, err := user.Operands(source)
		if err != nil {
			if strings.Contains(err.Error(), "a bug in") {
				t.Fatal(err)
			}
			return
		}
		if inputs > text.MaxInputs || results > text.MaxOperands-text.MaxInputs {
			return
		}
		for _, compute := range []dtype.DType{dtype.Float32, dtype.Int32, dtype.Complex64} {
			for ins := range inputs + 1 {
				s := text.Spec{Family: ElementwiseFamily, Op: source, Compute: compute, Block: threads, Ins: uint8(ins),
					Form: uint8(inputs - ins), Outs: uint8(results)}
				for k := range ins + results {
					s.Types[k] = compute
				}
				if err := elementwiseCheck(s); err != nil {
					t.Fatalf("%q is taken, and its call isn't: %v", source, err)
				}
				if _, err := s.Source(); err != nil {
					t.Fatalf("%q is taken, and has no kernel: %v", source, err)
				}
			}
		}
	})
}
