package kernel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// The layouts of tensors of tests.
const (
	inOrder      = iota // elements one after the other
	channelsLast        // likewise, with dimension 1 as the innermost
	anyOrder            // dimensions in any order, some backwards, with gaps
	farApart            // in order, with a step in a dimension of size 1 that needs 64 bits
)

// comparison gathers runs of operations, and compares their results with PyTorch's.
type comparison struct {
	t     *testing.T
	c     *cl
	r     *rand.Rand
	dir   string
	files int
	lines []string
	names []string
	outs  [][]*array
	close []float64
}

func newComparison(t *testing.T) *comparison {
	return &comparison{t: t, c: openCL(t), r: rand.New(rand.NewPCG(3, 4)), dir: t.TempDir()}
}

// operation is one of them.
type operation struct {
	*comparison
	dt     dtype.DType
	before string // statements of PyTorch
	files  []string
	outs   []*array
}

func (x *comparison) operation(dt dtype.DType) *operation { return &operation{comparison: x, dt: dt} }

// tensor makes a tensor of a layout.
func (x *comparison) tensor(dt dtype.DType, layout int, sizes ...int) *array {
	switch layout {
	case channelsLast:
		order := []int{1}
		for k := len(sizes) - 1; k >= 0; k-- {
			if k != 1 {
				order = append(order, k)
			}
		}
		strides, n := make([]int, len(sizes)), 1
		for _, k := range order {
			strides[k] = n
			n *= max(sizes[k], 1)
		}
		return x.c.array(x.t, dt, n, sizes, strides)
	case anyOrder:
		return x.c.random(x.t, x.r, dt, sizes)
	}
	a := x.c.dense(x.t, dt, sizes...)
	if k := slices.Index(sizes, 1); layout == farApart && k >= 0 {
		a.Strides[k] = 1 << 40
	}
	return a
}

// in makes an input, which the expressions of PyTorch know as a, b and so on.
func (o *operation) in(dt dtype.DType, layout int, value func(i int) float64, sizes ...int) *array {
	o.t.Helper()
	a := o.tensor(dt, layout, sizes...)
	n := a.Count()
	z := make([]complex128, n)
	for i := range z {
		z[i] = complex(value(i), 0)
		if dt.IsComplex() {
			z[i] += complex(0, value(i+3))
		}
	}
	a.put(z)
	d := o.c.dense(o.t, dt, n+1)
	d.set(append(z, 0))
	o.comparison.files++
	file := filepath.Join(o.dir, fmt.Sprintf("%d.%v", o.comparison.files, dt))
	if err := os.WriteFile(file, d.data, 0o600); err != nil {
		o.t.Fatal(err)
	}
	name := string(rune('a' + len(o.files)))
	o.files = append(o.files, file)
	o.before += fmt.Sprintf("%s = %s[:%d].view(%s); ", name, name, n, python(sizes))
	return a
}

// out makes a result.
func (o *operation) out(dt dtype.DType, layout int, sizes ...int) *array {
	a := o.tensor(dt, layout, sizes...)
	o.outs = append(o.outs, a)
	return a
}

// run runs the operation, to be compared with an expression of PyTorch.
func (o *operation) run(name, expression string, tolerance float64, add func(p *Plan) error) {
	o.t.Helper()
	p := Plan{Cores: o.c.loader.Cores(),
		Scratch: func(n int) (device.Ptr, error) { return o.c.dense(o.t, dtype.Uint8, n).Ptr, nil }}
	before := make([][]complex128, len(o.outs))
	for k, a := range o.outs {
		before[k] = a.elements()
	}
	err := add(&p)
	if err == nil {
		err = o.c.run(&p)
	}
	name += " of " + o.dt.String()
	if err != nil {
		o.t.Errorf("%s: %v", name, err)
		return
	}
	for k, a := range o.outs {
		a.intact(o.t, name)
		all := a.elements()
		for _, at := range a.places() {
			before[k][at], all[at] = 0, 0
		}
		for i := range all {
			if !nearComplex(all[i], before[k][i], 0) {
				o.t.Errorf("%s: written between the elements of a result", name)
				break
			}
		}
	}
	o.names = append(o.names, name)
	o.lines = append(o.lines, fmt.Sprintf("%v|%s|%s%s", o.dt, strings.Join(o.files, " "), o.before, expression))
	o.comparison.outs = append(o.comparison.outs, o.outs)
	o.close = append(o.close, tolerance)
}

// done compares all.
func (x *comparison) done() {
	x.t.Helper()
	for k, want := range torch(x.t, x.lines) {
		if len(want) != len(x.outs[k]) {
			x.t.Errorf("%s: PyTorch has %d results of %s", x.names[k], len(want), x.lines[k])
			continue
		}
		for i, a := range x.outs[k] {
			a.same(x.t, fmt.Sprintf("%s, result %d", x.names[k], i), want[i], x.close[k])
		}
	}
	x.t.Logf("%d operations", len(x.lines))
}

// places are where the elements lie in the memory, in the order of their indexes.
func (a *array) places() []int {
	all, index := make([]int, 0, a.Count()), make([]int, len(a.Sizes))
	for range a.Count() {
		at := a.offset
		for k, i := range index {
			at += i * a.Strides[k]
		}
		all = append(all, at)
		for k := len(index) - 1; k >= 0; k-- {
			if index[k]++; index[k] < a.Sizes[k] {
				break
			}
			index[k] = 0
		}
	}
	return all
}

// put sets the elements, in the order of their indexes.
func (a *array) put(z []complex128) {
	all := a.elements()
	for i, at := range a.places() {
		all[at] = z[i]
	}
	a.set(all)
}

// same compares the elements, in the order of their indexes, with PyTorch's.
func (a *array) same(t *testing.T, what string, want tensorResult, tolerance float64) {
	t.Helper()
	places := a.places()
	x, y := a.elements(), elements(want.dtype, want.data)
	if len(places) != len(y) || a.Type != want.dtype {
		t.Errorf("%s: %d elements of %v, and PyTorch has %d of %v", what, len(places), a.Type, len(y), want.dtype)
		return
	}
	for i, at := range places {
		if !nearComplex(x[at], y[i], tolerance) {
			t.Errorf("%s: element %d of %v is %v, and PyTorch's %v", what, i, a.Sizes, x[at], y[i])
			return
		}
	}
}

// A plan that's used again for operations on images allocates nothing.
func TestImagesAllocations(t *testing.T) {
	op := func(sizes ...int) Operand {
		return Operand{Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	x, y, w, b := op(8, 16, 40, 40), op(8, 32, 20, 20), op(32, 16, 3, 3), op(32)
	half, indexes := op(8, 16, 20, 20), op(8, 16, 20, 20)
	indexes.Type = dtype.Int64
	p := Plan{Scratch: func(int) (device.Ptr, error) { return 256, nil }}
	c := &Convolution{Stride: []int{2, 2}, Padding: []int{1, 1}}
	pool := &Pool{Kernel: []int{2, 2}}
	up := &Upsampling{Mode: "linear"}
	before := []int{1, 1}
	columns := op(8, 16, 2, 2, 20, 20)
	windows := &Pool{Kernel: []int{2, 2}, Stride: []int{2, 2}}
	large := op(8, 16, 42, 42)
	for _, p.Cores = range []int{0, 2} {
		if n := testing.AllocsPerRun(20, func() {
			p.Reset()
			for _, err := range [...]error{p.Convolution(y, x, w, b, c), p.ConvolutionBackward(x, w, b, y, x, w, c),
				p.MaxPool(half, indexes, x, pool), p.MaxPoolBackward(x, half, indexes, pool), p.AveragePool(half, x, pool),
				p.Upsample(x, half, up), p.UpsampleBackward(half, x, up), p.PadImage("reflect", large, x, before),
				p.Im2col(columns, x, windows), p.Col2im(x, columns, windows), p.MaxUnpoolBackward(half, x, indexes, 0)} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}); n > 0 {
			t.Errorf("%v allocations with %d cores", n, p.Cores)
		}
	}
}
