package kernel

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/device/rng"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// randomOf fills with a generator of package rng, whose numbers are those of PyTorch's CUDA kernels.
func randomOf[T rng.Float](t *testing.T, c *cl, dt dtype.DType) {
	const seed, offset = 0x123456789abcdef, 8
	gpu := rng.GPU{Multiprocessors: 2, ThreadsPerMultiprocessor: 512} // several rounds of its threads
	for _, n := range []int{1, 1000, 5000} {
		draw := func(name string, exact bool, run func(p *Plan, dst Operand, r Random) error,
			fill func(g rng.Generator, dst []T) error) {
			t.Helper()
			what := fmt.Sprintf("%s of %d %v", name, n, dt)
			a := c.dense(t, dt, n)
			var p Plan
			must(t, run(&p, a.Operand, Random{seed, offset, gpu}))
			must(t, c.run(&p))
			a.intact(t, what)
			g, want := rng.NewCUDA(seed, gpu), make([]T, n)
			must(t, g.SetOffset(offset))
			must(t, fill(g, want))
			b := unsafe.Slice((*byte)(unsafe.Pointer(&want[0])), len(a.data))
			if exact && !bytes.Equal(a.data, b) {
				t.Errorf("%s: other bits", what)
			}
			x, y := a.elements(), elements(dt, b)
			for i := range x {
				if !nearComplex(x[i], y[i], 100*tolerance(dt)*max(1, real(y[i]*y[i]))) {
					t.Errorf("%s: element %d is %v, want %v", what, i, x[i], y[i])
					return
				}
			}
		}
		draw("uniform", true, func(p *Plan, o Operand, r Random) error { return p.Uniform(o, r, -3.3, 7.7) },
			func(g rng.Generator, dst []T) error { return rng.Uniform(g, dst, -3.3, 7.7) })
		draw("normal", false, func(p *Plan, o Operand, r Random) error { return p.Normal(o, r, 1.5, 0.3) },
			func(g rng.Generator, dst []T) error { return rng.Normal(g, dst, 1.5, 0.3) })
		draw("bernoulli", true, func(p *Plan, o Operand, r Random) error { return p.Bernoulli(o, r, 0.3) },
			func(g rng.Generator, dst []T) error { return rng.Bernoulli(g, dst, 0.3) })
		draw("integers", true, func(p *Plan, o Operand, r Random) error { return p.Integers(o, r, -5, 90) },
			func(g rng.Generator, dst []T) error { return rng.Integers(g, dst, -5, 90) })
		if testutil.Short() {
			return
		}
		draw("log_normal", false, func(p *Plan, o Operand, r Random) error { return p.LogNormal(o, r, 0.5, 0.25) },
			func(g rng.Generator, dst []T) error { return rng.LogNormal(g, dst, 0.5, 0.25) })
		draw("exponential", false, func(p *Plan, o Operand, r Random) error { return p.Exponential(o, r, 1.7) },
			func(g rng.Generator, dst []T) error { return rng.Exponential(g, dst, 1.7) })
		draw("cauchy", false, func(p *Plan, o Operand, r Random) error { return p.Cauchy(o, r, 0.5, 2) },
			func(g rng.Generator, dst []T) error { return rng.Cauchy(g, dst, 0.5, 2) })
		draw("geometric", false, func(p *Plan, o Operand, r Random) error { return p.Geometric(o, r, 0.25) },
			func(g rng.Generator, dst []T) error { return rng.Geometric(g, dst, 0.25) })
	}
}

// Random numbers have PyTorch's bits; those of logarithms and sines differ in their last ones.
func TestRandom(t *testing.T) {
	c := openCL(t)
	randomOf[float32](t, c, dtype.Float32)
	if !testutil.Short() {
		randomOf[float64](t, c, dtype.Float64)
		randomOf[dtype.F16](t, c, dtype.Float16)
		randomOf[dtype.BF16](t, c, dtype.BFloat16)
	}
}

// Integers of 64 bits take two words each.
func TestRandomWide(t *testing.T) {
	c := openCL(t)
	a, want := c.dense(t, dtype.Int64, 777), make([]int64, 777)
	var p Plan
	must(t, p.Integers(a.Operand, Random{Seed: 5}, -7, 1<<40))
	must(t, p.Integers(c.dense(t, dtype.Int64, 0).Operand, Random{Seed: 5}, 0, 7))
	must(t, c.run(&p))
	must(t, rng.Integers(rng.NewCUDA(5, rng.GPU{}), want, -7, 1<<40))
	for i, v := range integers(dtype.Int64, a.data) {
		if v != want[i] {
			t.Fatalf("element %d is %d, want %d", i, v, want[i])
		}
	}
}
