package source

import (
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// A text has the functions that it calls, of its types, once each.
func TestFunctions(t *testing.T) {
	k, err := New("KERNEL void f(GLOBAL f32 *p) { p[0] = f32_airy_ai(f32_erfcx(p[0])) + t_f64_max(1, 2); }")
	if err != nil || k.Name() != "f" {
		t.Fatal(k.Name(), err)
	}
	c, err := k.Call(1, Rows, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A loader that compiles ahead waits for it, as nothing else computes it, and an error has its name.
	if !text.IsUser(c.Spec.Op) || !strings.HasPrefix(c.Spec.String(), "source f(") {
		t.Error(c.Spec)
	}
	s, err := c.Spec.Source()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"DEVICE f32 f32_airy_ai(f32 a) { return (f32)(t_f32_airy_ai(a)); }", "DEVICE f32 f32_erfcx(f32 a)", "DEVICE f64 t_f64_max(",
		"DEVICE f32 t_f32_horner(", "#define f32_PI"} {
		if n := strings.Count(s.Body, want); n != 1 {
			t.Errorf("%q is there %d times", want, n)
		}
	}
	if !s.F64 || s.Atomic64 {
		t.Errorf("%+v", s)
	}
}

// A text has the files of the dialect that it uses, and a function for each result of an operation.
func TestUses(t *testing.T) {
	body, err := functionsOf("x = f64_frexp_1(from_f8e5m2(p[0])); atomic_add_f16(p, f64_frexp(x));", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"DEVICE f64 f64_frexp(f64 a) { return (f64)(t_f64_fraction(a)); }",
		"DEVICE f64 f64_frexp_1(f64 a) { return (f64)( t_f64_power(a)); }", "DEVICE f32 from_f8e5m2(u8 x)",
		"ADD_TO_HALF(atomic_add_f16,", "DEVICE f64 t_f64_fraction("} {
		if n := strings.Count(body, want); n != 1 {
			t.Errorf("%q is there %d times in\n%s", want, n, body)
		}
	}
	// Those of all kernels are no functions of a type.
	if body, err = functionsOf("f32_bits(x) + f64_bits(y) + bits_f32(z)", false); err != nil || body != "" {
		t.Error(err, body)
	}
	if _, err := functionsOf("f32_frexp_2(1)", false); err == nil {
		t.Error("a third result of frexp")
	}
	// The exp of lanes is a macro in the functions of float32, and OpenCL's own may be one.
	body, err = functionsOf("f32_exp(x) + f64_exp(y)", true)
	if err != nil || strings.LastIndex(body, "f64_exp(") > strings.Index(body, "#define EXP_OF_LANES") {
		t.Error(err, body)
	}
}

// Every operation of the table with one result has a function in every type that it's defined for.
func TestEveryOperation(t *testing.T) {
	for _, o := range ops.All() {
		for name, typ := range types {
			if o.Expression(typ) == "" || o.Results() != 1 || o.Integers != 0 || typ == dtype.Float64 {
				continue
			}
			if _, err := functionsOf(name+"_"+o.Name+"(", false); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, source := range []string{"", "void f(void) {}", "KERNEL void f() {} KERNEL void g() {}",
		strings.Repeat("x", MaxText+1)} {
		if _, err := New(source); err == nil {
			t.Errorf("%.40q is taken", source)
		}
	}
	k, err := New("KERNEL void f(GLOBAL f32 *p) { p[0] = f32_nonesuch(1); }")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Call(-1, Rows, nil, nil); err == nil {
		t.Error("-1 rows")
	}
	if _, err := k.Call(1, Rows, nil, make([]int64, MaxArguments+1)); err == nil {
		t.Error("too many arguments")
	}
	c, err := k.Call(1, Elements, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Spec.Source(); err == nil || !strings.Contains(err.Error(), "f32_nonesuch") {
		t.Error(err)
	}
	if _, err := (text.Spec{Family: Family, Op: "x"}).Source(); err == nil {
		t.Error("a text without a function")
	}
}

// A text says how long its rows are: a block has no more threads than it needs, and few long rows keep all cores busy.
func TestRows(t *testing.T) {
	var processor loader.Loader
	processor.As(loader.Processor{Cores: 4})
	for _, c := range []struct {
		line           string
		units          Units
		n              int
		block, threads int // on a GPU
		cores          int // blocks on a processor
	}{
		{"", Elements, 1000, 4, 256, 1},
		{"", Rows, 10, 10, 256, 1},
		{"#define ROW_OF_BLOCK 33", Rows, 4096, 4096, 64, 64},
		{"#define ROW_OF_BLOCK 64", Rows, 10, 10, 64, 1},
		{"#define ROW_OF_BLOCK 129", Rows, 10, 10, 256, 1},
		{"#define ROW_OF_BLOCK 1000000", Rows, 10, 10, 256, 64},
		{"#define ROW_OF_BLOCK 7", Rows, 10, 10, 32, 1},
		{"#define ROW_OF_THREAD 4096", Elements, 1024, 4, 256, 64},
		{"#define ROW_OF_THREAD 4096", Elements, 60, 1, 256, 16},
	} {
		k, err := New(c.line + "\nKERNEL void f(GLOBAL f32 *p) {}")
		if err != nil {
			t.Fatal(err)
		}
		call, err := k.Call(c.n, c.units, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if call.Grid.X != c.block || call.Block.X != c.threads || int(call.Spec.Block) != c.threads {
			t.Errorf("%q, %d units: %d blocks of %d threads, want %d of %d", c.line, c.n, call.Grid.X, call.Block.X,
				c.block, c.threads)
		}
		if _, grid, _ := processor.Fit(call, 0); grid.X != c.cores {
			t.Errorf("%q, %d units: %d blocks on a processor, want %d", c.line, c.n, grid.X, c.cores)
		}
	}
}
