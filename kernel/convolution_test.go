package kernel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// convolutionCase is a convolution of a test.
type convolutionCase struct {
	x, w       []int // the input and the weight
	c          Convolution
	extra      []int // output padding
	bias, wide bool
}

// size is the size of the result in dimension k of space.
func (s *convolutionCase) size(k int) int {
	at := func(list []int, none int) int {
		if list == nil {
			return none
		}
		return list[k]
	}
	n, kernel := s.x[2+k], s.w[2+k]
	stride, padding, dilation := at(s.c.Stride, 1), at(s.c.Padding, 0), at(s.c.Dilation, 1)
	if s.c.Transposed {
		return (n-1)*stride - 2*padding + dilation*(kernel-1) + 1 + at(s.extra, 0)
	}
	return (n+2*padding-dilation*(kernel-1)-1)/stride + 1
}

// convolutionCases have each form of the kernels. There are tiles with full and with part-empty rows and columns, long
// sums in parts, groups of few and of many channels, and each channel on its own. Strides divide the gradient's places
// with every remainder. There are images of one element, and batches of none.
var convolutionCases = []convolutionCase{
	{x: []int{2, 5, 11, 9}, w: []int{70, 5, 3, 3}, c: Convolution{Stride: []int{2, 1}, Padding: []int{1, 2}}, bias: true},
	{x: []int{2, 12, 9, 10}, w: []int{24, 6, 3, 2}, c: Convolution{Dilation: []int{2, 3}, Groups: 2}},
	{x: []int{1, 6, 12, 12}, w: []int{12, 1, 3, 3}, c: Convolution{Stride: []int{2, 3}, Padding: []int{1, 1}, Groups: 6},
		bias: true},
	{x: []int{2, 16, 13}, w: []int{20, 16, 4}, c: Convolution{Stride: []int{3}, Padding: []int{2}}, bias: true},
	{x: []int{1, 10, 5, 6, 7}, w: []int{11, 10, 3, 2, 3}, c: Convolution{Stride: []int{1, 2, 2}, Padding: []int{1, 0, 2}}},
	{x: []int{2, 64, 8, 8}, w: []int{65, 64, 1, 1}, bias: true},
	{x: []int{2, 9, 7, 7}, w: []int{10, 9, 1, 1}, c: Convolution{Stride: []int{2, 2}}},
	{x: []int{4, 10, 40, 40}, w: []int{12, 10, 3, 3}, c: Convolution{Padding: []int{1, 1}}},
	{x: []int{2, 20, 5, 6}, w: []int{20, 9, 3, 4}, c: Convolution{Stride: []int{2, 3}, Padding: []int{1, 0},
		Transposed: true}, extra: []int{1, 2}, bias: true},
	{x: []int{2, 24, 6, 5}, w: []int{24, 11, 3, 3}, c: Convolution{Stride: []int{4, 6}, Dilation: []int{2, 4}, Groups: 2,
		Transposed: true}, extra: []int{3, 5}, bias: true},
	{x: []int{1, 3, 8}, w: []int{3, 1, 3}, c: Convolution{Stride: []int{2}, Groups: 3, Transposed: true}, bias: true},
	{x: []int{1, 12, 3, 4, 3}, w: []int{12, 10, 2, 3, 2}, c: Convolution{Stride: []int{2, 1, 3}, Transposed: true}},
	{x: []int{1, 9, 1, 1}, w: []int{9, 9, 3, 3}, c: Convolution{Padding: []int{1, 1}}, bias: true},
	{x: []int{3, 7, 1}, w: []int{9, 7, 1}, bias: true},
	{x: []int{0, 3, 5, 5}, w: []int{9, 3, 3, 3}, bias: true},
	{x: []int{1, 4, 6, 7}, w: []int{10, 4, 3, 3}, c: Convolution{Stride: []int{2, 2}}, bias: true, wide: true},
	{x: []int{1, 4, 6, 7}, w: []int{4, 1, 3, 3}, c: Convolution{Stride: []int{2, 2}, Groups: 4}, bias: true, wide: true},
	{x: []int{1, 1, 30}, w: []int{1, 1, 5}, c: Convolution{Padding: []int{2}}, bias: true},
	{x: []int{2, 20, 6, 53}, w: []int{20, 1, 3, 3}, c: Convolution{Padding: []int{1, 1}, Groups: 20}, bias: true},
	{x: []int{2, 36, 6, 35}, w: []int{36, 1, 3, 3}, c: Convolution{Padding: []int{1, 1}, Stride: []int{2, 2}, Groups: 36}},
	{x: []int{1, 8, 5, 35}, w: []int{12, 4, 1, 3}, c: Convolution{Groups: 2}, bias: true},
}

// Convolutions and their gradients, of every kind of type and of several layouts, against PyTorch.
func TestConvolutionTorch(t *testing.T) {
	x := newComparison(t)
	value := func(step int) func(i int) float64 {
		return func(i int) float64 { return float64((i*step+i/7)%17-8) / 8 }
	}
	for k, s := range convolutionCases {
		for j, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16, dtype.Float16, dtype.Complex64,
			dtype.Int64} {
			onUnit := emulated() && k == 0 && dt.Size() == 2 && dt.IsFloating()
			if !sampled(5*k+3*j, 82, 5) && !onUnit || dt == dtype.Float16 && slices.Max(s.x) >= 40 { // PyTorch adds in 16 bits
				continue
			}
			layout := []int{inOrder, channelsLast, anyOrder}[(k+j)%3]
			if s.wide {
				layout = farApart
			}
			o := x.operation(dt)
			in, weight := o.in(dt, layout, value(7919), s.x...), o.in(dt, layout, value(104729), s.w...)
			d := len(s.x) - 2
			channels := s.w[0]
			if s.c.Transposed {
				channels = s.w[1] * max(s.c.Groups, 1)
			}
			sizes := []int{s.x[0], channels}
			for k := range d {
				sizes = append(sizes, s.size(k))
			}
			grad := o.in(dt, layout, value(1299709), sizes...)
			var bias, gradBias Operand
			call := fmt.Sprintf("torch.conv%dd(a, b, %%s, stride=%s, padding=%s, dilation=%s, groups=%d)", d,
				listOf(s.c.Stride, d, 1), listOf(s.c.Padding, d, 0), listOf(s.c.Dilation, d, 1), max(s.c.Groups, 1))
			if s.c.Transposed {
				call = strings.Replace(call, "torch.conv", "torch.conv_transpose", 1)
				call = call[:len(call)-1] + ", output_padding=" + listOf(s.extra, d, 0) + ")"
			}
			out := o.out(dt, layout, sizes...)
			if s.bias {
				bias = o.in(dt, inOrder, value(31), channels).Operand
				call = fmt.Sprintf(call, "d")
			} else {
				call = fmt.Sprintf(call, "None")
			}
			expression := "y = " + call + "; (y,)"
			backward := dt.IsFloating() || dt.IsComplex()
			var gradIn, gradWeight *array
			if backward {
				gradIn, gradWeight = o.out(dt, layout, s.x...), o.out(dt, layout, s.w...)
				grads := "y, a.grad, b.grad"
				expression = "[v.requires_grad_() for v in (a, b)]; y = " + call + "; y.backward(c); "
				if s.bias {
					gradBias = o.out(dt, inOrder, channels).Operand
					grads += ", d.grad"
					expression = strings.Replace(expression, "(a, b)", "(a, b, d)", 1)
				}
				if dt.IsComplex() { // PyTorch's gradients are those of the conjugate
					expression = "[v.requires_grad_() for v in (a, b)]; y = " + call + "; y.backward(c.conj()); "
					if s.bias {
						expression = strings.Replace(expression, "(a, b)", "(a, b, d)", 1)
					}
					grads = strings.ReplaceAll(grads, ".grad", ".grad.conj()")
				}
				expression += "(" + grads + ")"
			}
			o.run(fmt.Sprintf("convolution %d, %v with %v", k, s.x, s.w), expression, 10*tolerance(dt), func(p *Plan) error {
				if err := p.Convolution(out.Operand, in.Operand, weight.Operand, bias, &s.c); err != nil || !backward {
					return err
				}
				return p.ConvolutionBackward(gradIn.Operand, gradWeight.Operand, gradBias, grad.Operand, in.Operand, weight.Operand,
					&s.c)
			})
		}
	}
	x.done()
}

// listOf is a list of Python's of d numbers.
func listOf(list []int, d, none int) string {
	if list == nil {
		list = slices.Repeat([]int{none}, d)
	}
	return strings.ReplaceAll(fmt.Sprint(list), " ", ", ")
}

// Operands that don't fit are refused before there is a call, and indexes have 64 bits where they must.
func TestConvolutionRefused(t *testing.T) {
	op := func(sizes ...int) Operand {
		return Operand{Type: dtype.Float32, Sizes: sizes, Strides: Dense(sizes...)}
	}
	var p Plan
	for _, s := range []struct {
		out, in, weight, bias Operand
		c                     Convolution
		want                  string
	}{
		{op(1, 4, 5, 5), op(1, 3, 6, 6), op(4, 3, 3, 3), Operand{}, Convolution{}, "to [1 4 5 5]: stride 1"},
		{op(1, 4, 4, 4), op(1, 3, 6, 6), op(4, 2, 3, 3), Operand{}, Convolution{}, "in 1 groups"},
		{op(1, 4, 4, 4), op(1, 3, 6, 6), op(4, 1, 3, 3), Operand{}, Convolution{Groups: 2}, "in 2 groups"},
		{op(1, 4, 4, 4), op(1, 3, 6, 6), op(4, 3, 3, 3), op(3), Convolution{}, "a bias of sizes [3]"},
		{op(1, 4, 4, 4), op(1, 3, 6, 6), op(4, 3, 3, 3), Operand{}, Convolution{Stride: []int{0, 1}}, "stride [0 1]"},
		{op(1, 4, 4, 4), op(1, 3, 6, 6), op(4, 3, 3, 3), Operand{}, Convolution{Padding: []int{1}},
			"padding [1] in 2 dimensions"},
		{op(1, 4), op(1, 3), op(4, 3), Operand{}, Convolution{}, "0 dimensions"},
		{op(1, 4, 1), op(1, 3, 2), op(4, 3, 3), Operand{}, Convolution{}, "to [1 4 1]"},
		{op(1, 3, 14), op(1, 4, 6), op(4, 3, 3), Operand{}, Convolution{Stride: []int{2}, Transposed: true}, ""},
		{op(1, 3, 15), op(1, 4, 6), op(4, 3, 3), Operand{}, Convolution{Stride: []int{2}, Transposed: true}, "stride 2"},
	} {
		p.Reset()
		err := p.Convolution(s.out, s.in, s.weight, s.bias, &s.c)
		if (err == nil) != (s.want == "") || err != nil && (!strings.Contains(err.Error(), s.want) || len(p.Calls) > 0) {
			t.Errorf("%v with %v to %v: %v, want %q", s.in.Sizes, s.weight.Sizes, s.out.Sizes, err, s.want)
		}
	}
	for _, s := range []struct {
		n    int
		wide bool
	}{{1 << 10, false}, {1 << 27, true}} {
		p.Reset()
		must(t, p.Convolution(op(s.n, 9, 4), op(s.n, 3, 4), op(9, 3, 1), Operand{}, &Convolution{}))
		if p.Calls[0].Spec.Wide != s.wide {
			t.Errorf("a batch of %d: wide is %v", s.n, p.Calls[0].Spec.Wide)
		}
	}
}

// A layer of ResNet: 64 channels, 3 by 3, of 8 images. PyTorch's is
//
//	python -m timeit -s 'import torch; x = torch.randn(8,64,56,56); w = torch.randn(64,64,3,3)' \
//		'torch.conv2d(x, w, padding=1)'
func BenchmarkConvolution(b *testing.B) {
	c := openCL(b)
	x, y := c.dense(b, dtype.Float32, 8, 64, 56, 56), c.dense(b, dtype.Float32, 8, 64, 56, 56)
	w := c.dense(b, dtype.Float32, 64, 64, 3, 3)
	p := Plan{Scratch: func(n int) (device.Ptr, error) { return c.dense(b, dtype.Uint8, n).Ptr, nil }}
	conv := &Convolution{Padding: []int{1, 1}}
	ctx := context.Background()
	for _, a := range []*array{x, y, w} {
		clear(a.whole)
		must(b, c.stream.CopyIn(ctx, a.Ptr.Add(-guard), a.whole))
	}
	for _, s := range []struct {
		name string
		add  func() error
	}{
		{"forward", func() error { return p.Convolution(y.Operand, x.Operand, w.Operand, Operand{}, conv) }},
		{"input", func() error {
			return p.ConvolutionBackward(x.Operand, Operand{}, Operand{}, y.Operand, x.Operand, w.Operand, conv)
		}},
		{"weight", func() error {
			return p.ConvolutionBackward(Operand{}, w.Operand, Operand{}, y.Operand, x.Operand, w.Operand, conv)
		}},
		{"matmul", func() error {
			m := func(a *array) Operand { return viewed(a.Operand, 1024, 1024) }
			return p.Matmul(m(y), m(x), m(x), Operand{}, Int(1), Int(0), "")
		}},
	} {
		b.Run(s.name, func(b *testing.B) {
			p.Reset()
			must(b, s.add())
			flops := 2.0 * 8 * 56 * 56 * 64 * 64 * 9
			if s.name == "matmul" {
				flops = 2.0 * 1024 * 1024 * 1024
			}
			run := func() {
				must(b, c.loader.Run(c.stream, p.Calls))
				must(b, c.stream.Synchronize(ctx))
			}
			run()
			for b.Loop() {
				run()
			}
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
	}
}
