package kernel

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
)

// Images and volumes at places inside and outside of them, on their borders and far away, and the gradients, against
// PyTorch.
func TestGridSampleTorch(t *testing.T) {
	x := newComparison(t)
	const most = 24
	for k := range most + 2 { // and each time, those of fewer bits whose threads add to the same elements
		if k < most && !sampled(5*k, 46, 2) {
			continue
		}
		g := &GridSampling{Mode: []string{"nearest", "bilinear", "bilinear"}[k/12],
			Border: []string{"zeros", "border", "reflection"}[k/4%3], AlignCorners: k/2%2 == 1}
		dt := []dtype.DType{dtype.Float32, dtype.Float64}[(k/2+k/4)%2]
		layout := []int{inOrder, channelsLast, anyOrder, farApart}[(k+k/4)%4]
		alone := k/2%2 == 0 // a thread has all of a channel, as a processor's
		if k >= most {
			dt, layout, alone = []dtype.DType{dtype.Float32, dtype.Float16}[k-most], inOrder, false
		}
		o := x.operation(dt)
		value := func(i int) float64 { return float64(i*7919%17) / 4 }
		places := func(i int) float64 {
			if i == 3 && g.Border != "reflection" && dt != dtype.Float16 {
				return 1e12
			}
			return math.Sin(float64(i)*1.7)*2.1 + 0.013
		}
		sizes, result, grid := []int{1, 3, 5, 6}, []int{1, 3, 4, 7}, []int{1, 4, 7, 2}
		if k%2 == 1 && k < most {
			sizes, result, grid = []int{1, 3, 4, 5, 6}, []int{1, 3, 2, 3, 4}, []int{1, 2, 3, 4, 3}
		}
		if layout != farApart {
			sizes[0], result[0], grid[0] = 2, 2, 2
		}
		image := func(i int) float64 {
			if i%13 == 5 && g.Mode == "nearest" {
				return math.Inf(1)
			}
			return value(i)
		}
		in, at := o.in(dt, layout, image, sizes...), o.in(dt, layout, places, grid...)
		grad := o.in(dt, layout, value, result...)
		out, gradIn, gradGrid := o.out(dt, layout, result...), o.out(dt, layout, sizes...), o.out(dt, layout, grid...)
		flag := map[bool]string{false: "False", true: "True"}[g.AlignCorners]
		expression := fmt.Sprintf("a.requires_grad_(); b.requires_grad_(); y = F.grid_sample(a, b, '%s', '%s', %s); "+
			"y.backward(c); (y, a.grad, b.grad)", g.Mode, g.Border, flag)
		if dt == dtype.Float16 { // which PyTorch's CPU doesn't sample
			expression = "a, b, c = a.double(), b.double(), c.double(); " + strings.TrimSuffix(expression, "(y, a.grad, b.grad)") +
				"(y.to(dtype), a.grad.to(dtype), b.grad.to(dtype))"
		}
		o.run(fmt.Sprintf("%+v of %v", *g, sizes), expression, 20*tolerance(dt), func(p *Plan) error {
			if !alone {
				p.Cores, p.Atomics = 0, true
			}
			if err := p.GridSample(out.Operand, in.Operand, at.Operand, g); err != nil {
				return err
			}
			return p.GridSampleBackward(gradIn.Operand, gradGrid.Operand, grad.Operand, in.Operand, at.Operand, g)
		})
	}
	x.done()
}

// Places that are NaN, infinite or far away, alone and with others, against PyTorch. Its own gradient reads outside of
// an image there, unless nothing is outside.
func TestGridSampleFar(t *testing.T) {
	x := newComparison(t)
	dt, inf := dtype.Float32, math.Inf(1)
	for k := range 24 {
		if !sampled(k, 24, 4) {
			continue
		}
		g := &GridSampling{Mode: []string{"bilinear", "nearest"}[k%2], Border: []string{"zeros", "border", "reflection"}[k/2%3],
			AlignCorners: k/6%2 == 1}
		places := []float64{math.NaN(), inf, -inf, 0.2, -0.7}
		if g.Border != "reflection" { // of a place beyond 2^24 has no digit that counts
			places = append(places, 1e30, -3e9, math.MaxFloat32)
		}
		n, d := len(places), 2+k/12
		sizes, result, grid := []int{1, 2, 5, 6}, []int{1, 2, n, n}, []int{1, n, n, 2}
		if d == 3 {
			sizes, result, grid = []int{1, 2, 4, 5, 6}, []int{1, 2, 1, n, n}, []int{1, 1, n, n, 3}
		}
		o := x.operation(dt)
		in := o.in(dt, inOrder, func(i int) float64 { return float64(i*7919%17)/4 + 1 }, sizes...)
		at := o.in(dt, inOrder, func(i int) float64 { // each with each one, and the first again as the third
			return []float64{places[i/d/n], places[i/d%n], places[i/d/n]}[i%d]
		}, grid...)
		flag := map[bool]string{false: "False", true: "True"}[g.AlignCorners]
		expression := fmt.Sprintf("y = F.grid_sample(a, b, '%s', '%s', %s); y", g.Mode, g.Border, flag)
		backward := d == 3 || g.Mode == "nearest" || g.Border == "zeros"
		if backward {
			expression = fmt.Sprintf("a.requires_grad_(); b.requires_grad_(); y = F.grid_sample(a, b, '%s', '%s', %s); "+
				"y.sum().backward(); (y, a.grad, b.grad)", g.Mode, g.Border, flag)
		}
		grad := o.in(dt, inOrder, func(int) float64 { return 1 }, result...)
		out := o.out(dt, inOrder, result...)
		var gradIn, gradGrid *array
		if backward {
			gradIn, gradGrid = o.out(dt, inOrder, sizes...), o.out(dt, inOrder, grid...)
		}
		o.run(fmt.Sprintf("%+v of %v", *g, sizes), expression, 20*tolerance(dt), func(p *Plan) error {
			if err := p.GridSample(out.Operand, in.Operand, at.Operand, g); err != nil || !backward {
				return err
			}
			return p.GridSampleBackward(gradIn.Operand, gradGrid.Operand, grad.Operand, in.Operand, at.Operand, g)
		})
	}
	x.done()
}

// The gradient by the input has a thread for each place and channel, unless the order of its sums has to be the same or
// the device is a processor.
func TestGridSampleThreads(t *testing.T) {
	op := func(sizes ...int) Operand {
		return Operand{Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	in, grad, grid := op(8, 3, 16, 16), op(8, 3, 64, 64), op(8, 64, 64, 2)
	for _, c := range []struct {
		cores   int
		atomics bool
		most    int
	}{{0, true, 8 * 3 * 64 * 64}, {0, false, 8 * 3}, {4, true, 8 * 3}} {
		p := Plan{Cores: c.cores, Atomics: c.atomics}
		g := &GridSampling{Mode: "bilinear", Border: "zeros"}
		if err := p.GridSampleBackward(in, Operand{}, grad, in, grid, g); err != nil {
			t.Fatal(err)
		}
		last := p.Calls[len(p.Calls)-1]
		if n := last.Grid.X; n != (c.most+threads-1)/threads {
			t.Errorf("%d cores, in any order %v: %d blocks of %q", c.cores, c.atomics, n, last.Spec.Op)
		}
	}
}

// Operands that don't fit are refused.
func TestImagesRefused(t *testing.T) {
	op := func(sizes ...int) Operand {
		return Operand{Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	indexes := func(sizes ...int) Operand {
		o := op(sizes...)
		o.Type = dtype.Int64
		return o
	}
	var p Plan
	two, four := []int{2, 2}, []int{4, 4}
	for _, s := range []struct {
		want string
		err  error
	}{
		{"to 4", p.MaxPool(op(1, 2, 4, 3), Operand{}, op(1, 2, 6, 6), &Pool{Kernel: two})},
		{"more than half", p.MaxPool(op(1, 2, 4, 4), Operand{}, op(1, 2, 6, 6), &Pool{Kernel: two, Padding: two})},
		{"windows of [2]", p.AveragePool(op(1, 2, 3, 3), op(1, 2, 6, 6), &Pool{Kernel: two[:1]})},
		{"indexes of float32", p.MaxPool(op(1, 2, 3, 3), op(1, 2, 3, 3), op(1, 2, 6, 6), &Pool{Kernel: two})},
		{"with windows", p.MaxPool(op(1, 2, 3, 3), Operand{}, op(1, 2, 6, 6), &Pool{Kernel: two, Adaptive: true})},
		{"with dilation", p.AveragePool(op(1, 2, 3, 3), op(1, 2, 6, 6), &Pool{Kernel: two, Dilation: two})},
		{"batch, channels", p.AveragePool(op(1, 3, 3, 3), op(1, 2, 6, 6), &Pool{Kernel: two})},
		{"max_unpool", p.MaxUnpool(op(1, 2, 4, 4), op(1, 2, 2, 2), indexes(1, 2, 2, 3), 0)},
		{"no upsampling", p.Upsample(op(1, 2, 4, 4), op(1, 2, 2, 2), &Upsampling{Mode: "nearest", AlignCorners: true})},
		{"no upsampling", p.Upsample(op(1, 2, 4, 4), op(1, 2, 2, 2), &Upsampling{Mode: "square"})},
		{"of 0 elements", p.Upsample(op(1, 2, 4, 4), op(1, 2, 0, 2), &Upsampling{Mode: "linear"})},
		{"a border of 2", p.PadImage("reflect", op(1, 2, 6, 6), op(1, 2, 2, 2), two)},
		{"no border", p.PadImage("mirror", op(1, 2, 6, 6), op(1, 2, 2, 2), two)},
		{"columns", p.Im2col(op(1, 2, 2, 2, 4, 4), op(1, 2, 4, 4), &Pool{Kernel: two})},
		{"mode \"bicubic\"", p.GridSample(op(1, 2, 4, 4), op(1, 2, 2, 2), op(1, 4, 4, 2), &GridSampling{Mode: "bicubic"})},
		{"2 or 3 of space", p.GridSample(op(1, 2, 4), op(1, 2, 2), op(1, 4, 1), &GridSampling{Mode: "nearest"})},
		{"at [1 4 4 3]", p.GridSample(op(1, 2, 4, 4), op(1, 2, 2, 2), op(1, 4, 4, 3), &GridSampling{Mode: "nearest"})},
		{"pad of", p.Pad(op(4, 4), op(2, 2), four[:1], Int(0))},
	} {
		if s.err == nil || !strings.Contains(s.err.Error(), s.want) {
			t.Errorf("%v, want %q", s.err, s.want)
		}
	}
	if len(p.Calls) > 0 {
		t.Error("a refused operation left calls")
	}
}
