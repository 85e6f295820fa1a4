package kernel

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// Products on a processor have the same bits for any vectors and any tiles. The GPUs' form is as near to the sums in
// float64. Sizes are of several tiles, panels and depths, and not multiples of them; matrices are transposed.
func TestMatmulPanels(t *testing.T) {
	c := openCL(t)
	if c.loader.Cores() == 0 {
		t.Skip("left out: the device is no processor")
	}
	loader := func(cores, lanes int) *Loader {
		l, err := NewLoader(c.dev, nil)
		must(t, err)
		l.cores, l.lanes = cores, lanes
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
	loaders := []*Loader{c.loader, loader(64, 8), loader(1, 4), loader(0, 0)}
	for _, l := range loaders[:testutil.Pick(2, len(loaders))] {
		for k, strides := range kinds {
			what := fmt.Sprintf("strides %v, %d cores, %d lanes", strides, l.cores, l.lanes)
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
			if l.cores > 0 && !bytes.Equal(first[k], out.data) {
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

// A product's blocks are at most a tile, and as many as the cores take.
func TestPanelGrid(t *testing.T) {
	for _, x := range []struct {
		compute             dtype.DType
		m, n, count, cores  int
		down, across, lanes int
	}{
		{dtype.Float32, 1024, 1024, 1, 2, 11, 4, 16},
		{dtype.Float32, 64, 64, 1, 1, 2, 1, 16},
		{dtype.Float32, 64, 1024, 1, 2, 1, 4, 16},
		{dtype.Float32, 64, 1024, 1, 64, 6, 16, 16},
		{dtype.Float32, 64, 64, 100, 8, 1, 1, 8},
		{dtype.Float64, 1024, 1024, 1, 2, 11, 8, 16},
		{dtype.Complex128, 1024, 1024, 1, 2, 11, 16, 4},
	} {
		s := Spec{Family: MatmulFamily, Compute: x.compute}
		s, grid := packed(s, device.Dim{X: tilesOf(x.n), Y: tilesOf(x.m), Z: x.count}, x.cores, x.lanes)
		if grid != (device.Dim{X: x.down, Y: x.across, Z: x.count}) {
			t.Errorf("%+v: %+v", x, grid)
		}
		columns, _ := packedTile(x.compute)
		p := panelsOf(s)
		if up := (x.m-1)/grid.X/p.rows*p.rows + p.rows; up > panelRows {
			t.Errorf("%+v: %d rows of a block", x, up)
		}
		width := p.columns(x.compute)
		if up := (x.n-1)/grid.Y/width*width + width; up > columns || panelRows%p.rows != 0 || columns%width != 0 {
			t.Errorf("%+v: %d columns of a block of %d", x, up, columns)
		}
	}
	for _, dt := range types {
		if bytes := packedMemory(Opmath(dt)); bytes > 208<<10 { // Intel's runtime has 256 KiB, also for what it adds
			t.Errorf("%v: a tile needs %d bytes", dt, bytes)
		}
	}
}

// A product has the same bits with tiles of any side, which a tuned one is given by its result. Sizes aren't multiples
// of the tiles, and a matrix is transposed. One of another form has none.
func TestTunedTiles(t *testing.T) {
	c := openCL(t)
	defer func() { Tuned.Set(Tuning{}); Tuned.results = nil }()
	Tuned.Set(Tuning{Enabled: true})
	l, err := NewLoader(c.dev, nil)
	must(t, err)
	l.cores, l.library.types = 0, 0
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
		for _, side := range tileSides {
			var p Plan
			must(t, p.Matmul(out.Operand, a.Operand, b.strided([]int{depth, n}, []int{1, depth}), Operand{}, Int(1), Int(0), ""))
			k := tuneKey(&p.Calls[0].product)
			Tuned.results = nil
			must(t, Tuned.Add(k[0]+","+k[1]+","+solutionOfTiles(side)+",1.5"))
			want := map[bool]int{true: side, false: 0}[side <= tileSide || dt == dtype.Float32]
			if got := l.tuned(c.stream, &p.Calls[0]); got != want {
				t.Errorf("%v in tiles of %d: %d, want %d", dt, side, got, want)
			}
			clear(out.data)
			must(t, on.run(&p))
			out.intact(t, fmt.Sprintf("tiles of %d", side))
			if first == nil {
				first = bytes.Clone(out.data)
			} else if !bytes.Equal(first, out.data) {
				t.Errorf("%v in tiles of %d: other bits", dt, side)
			}
		}
		if kernels := len(l.kernels); kernels != map[dtype.DType]int{dtype.Float32: 3, dtype.Complex64: 5}[dt] {
			t.Errorf("%v: %d kernels", dt, kernels)
		}
		// measured, without a library
		Tuned.results = nil
		Tuned.Set(Tuning{Enabled: true, Tune: true, Iterations: 1})
		var p Plan
		must(t, p.Matmul(out.Operand, a.Operand, b.strided([]int{depth, n}, []int{1, depth}), Operand{}, Int(1), Int(0), ""))
		must(t, on.run(&p))
		if found := Tuned.Results(); len(found) != 1 || !strings.Contains(found[0], ","+solutionKernel) ||
			!bytes.Equal(first, out.data) {
			t.Errorf("%v: measured %q", dt, found)
		}
	}
}
