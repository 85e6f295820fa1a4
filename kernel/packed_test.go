package kernel

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/gemm"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// Products on a processor have the same bits for any vectors and any tiles. The GPUs' form is as near to the sums in
// float64. Sizes are of several tiles, panels and depths, and not multiples of them; matrices are transposed.
func TestMatmulPanels(t *testing.T) {
	c := openCL(t)
	if c.loader.Cores() == 0 {
		t.Skip("left out: the device is no processor")
	}
	with := func(cores, lanes int) *loader.Loader {
		l, err := loader.New(c.dev, nil)
		must(t, err)
		like := l.Processor()
		like.Cores, like.Lanes = cores, lanes
		l.As(like)
		return l
	}
	m, n, depth := 100, 270, 133
	a, b := c.dense(t, dtype.Float32, m*depth), c.dense(t, dtype.Float32, depth*n)
	out := c.dense(t, dtype.Float32, m, n)
	for k, x := range []*array{a, b} {
		z := make([]complex128, len(x.data)/4)
		for i := range z {
			z[i] = complex(math.Sin(float64(i*(k+3))), 0)
		}
		x.set(z)
	}
	x, y := a.elements(), b.elements()
	kinds := [][2][]int{{{depth, 1}, {n, 1}}, {{1, m}, {n, 1}}, {{depth, 1}, {1, depth}}}
	first := make([][]byte, len(kinds))
	loaders := []*loader.Loader{c.loader, with(64, 8), with(1, 4), with(0, 0)}
	for _, l := range loaders[:testutil.Pick(2, len(loaders))] {
		for k, strides := range kinds {
			what := fmt.Sprintf("strides %v, %d cores, %d lanes", strides, l.Cores(), l.Processor().Lanes)
			var p Plan
			must(t, p.Matmul(out.Operand, a.strided([]int{m, depth}, strides[0]), b.strided([]int{depth, n}, strides[1]),
				Operand{}, Int(1), Int(0), ""))
			on := *c
			on.loader = l
			must(t, on.run(&p))
			out.intact(t, what)
			if first[k] == nil {
				first[k] = bytes.Clone(out.data)
			}
			if l.Cores() > 0 && !bytes.Equal(first[k], out.data) {
				t.Errorf("%s: other bits", what)
			}
			for i, got := range out.elements() {
				want := 0i
				for d := range depth {
					want += x[i/n*strides[0][0]+d*strides[0][1]] * y[d*strides[1][0]+i%n*strides[1][1]]
				}
				if math.Abs(real(got-want)) > 1e-4 {
					t.Fatalf("%s: element %d is %v instead of %v", what, i, got, want)
				}
			}
		}
	}
}

// A product has the same bits with tiles of any side, which a tuned one is given by its result. Sizes aren't multiples
// of the tiles, and a matrix is transposed. One of another form has none.
func TestTunedTiles(t *testing.T) {
	c := openCL(t)
	defer func() { loader.Tuned.Set(loader.Tuning{}); loader.Tuned.Forget() }()
	loader.Tuned.Set(loader.Tuning{Enabled: true})
	l, err := loader.New(c.dev, nil)
	must(t, err)
	l.As(loader.Processor{})
	on := *c
	on.loader = l
	m, n, depth := 150, 70, 33
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Complex64}[:testutil.Pick(1, 2)] {
		a, b, out := c.dense(t, dt, m, depth), c.dense(t, dt, n, depth), c.dense(t, dt, m, n)
		for k, x := range []*array{a, b} {
			z := make([]complex128, m*depth)
			for i := range z {
				z[i] = complex(math.Sin(float64(i*(k+3))), math.Cos(float64(i)))
			}
			x.set(z[:x.Count()])
		}
		var first []byte
		for _, side := range gemm.Sides {
			var p Plan
			must(t, p.Matmul(out.Operand, a.Operand, b.strided([]int{depth, n}, []int{1, depth}), Operand{}, Int(1), Int(0), ""))
			k := loader.TuningKey(&p.Calls[0].Library.GEMM)
			loader.Tuned.Forget()
			must(t, loader.Tuned.Add(k[0]+","+k[1]+","+loader.SolutionOfTiles(side)+",1.5"))
			clear(out.data)
			must(t, on.run(&p))
			out.intact(t, fmt.Sprintf("tiles of %d", side))
			if first == nil {
				first = bytes.Clone(out.data)
			} else if !bytes.Equal(first, out.data) {
				t.Errorf("%v in tiles of %d: other bits", dt, side)
			}
		}
		if kernels := l.Compiled(); kernels != map[dtype.DType]int{dtype.Float32: 3, dtype.Complex64: 5}[dt] {
			t.Errorf("%v: %d kernels", dt, kernels)
		}
		// measured, without a library
		loader.Tuned.Forget()
		loader.Tuned.Set(loader.Tuning{Enabled: true, Tune: true, Iterations: 1})
		var p Plan
		must(t, p.Matmul(out.Operand, a.Operand, b.strided([]int{depth, n}, []int{1, depth}), Operand{}, Int(1), Int(0), ""))
		must(t, on.run(&p))
		if found := loader.Tuned.Results(); len(found) != 1 || !strings.Contains(found[0], ",Gemm_Chorus") ||
			!bytes.Equal(first, out.data) {
			t.Errorf("%v: measured %q", dt, found)
		}
	}
}
