package kernel

import (
	"errors"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// Kernels that are compiled ahead are refused until they're ready. Users' functions are waited for.
func TestCompileAhead(t *testing.T) {
	c := openCL(t)
	l, err := loader.New(c.dev, nil)
	must(t, err)
	l.CompileAhead()
	old := c.loader
	c.loader = l
	defer func() { c.loader = old }()
	a := c.dense(t, dtype.Float32, 10)
	var p Plan
	must(t, p.Elementwise("template <typename T> T f(T x) { return x + 1; }", dtype.Float32, []Operand{a.Operand},
		[]Operand{a.Operand}))
	must(t, c.run(&p))
	p.Reset()
	must(t, p.Elementwise("abs", dtype.Float32, []Operand{a.Operand}, []Operand{a.Operand}))
	must(t, p.Elementwise("neg", dtype.Float32, []Operand{a.Operand}, []Operand{a.Operand}))
	before := l.Compiled()
	var refused *loader.CompileError
	if err := c.run(&p); !errors.As(err, &refused) || !errors.Is(err, loader.ErrCompiling) {
		t.Errorf("at first: %v", err)
	}
	must(t, l.Settle(t.Context()))
	if got := l.Compiled() - before; got != 2 {
		t.Errorf("%d kernels were compiled", got)
	}
	must(t, c.run(&p))
	if s := l.Stats(); s.Refused != 0 || l.Compiled()-before != 2 {
		t.Errorf("%+v", s)
	}
}
