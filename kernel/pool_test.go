package kernel

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
)

// poolCase is a pool of a test; windows that may stand over the end have ceil set.
type poolCase struct {
	x    []int
	c    Pool
	out  []int // of an adaptive pool
	ceil bool
	wide bool
}

var poolCases = []poolCase{
	{x: []int{2, 3, 11, 9}, c: Pool{Kernel: []int{3, 2}, Stride: []int{2, 1}, Padding: []int{1, 1}, CountPadding: true}},
	{x: []int{2, 3, 11, 10}, c: Pool{Kernel: []int{3, 3}, Stride: []int{2, 2}}, ceil: true},
	{x: []int{1, 4, 9, 9}, c: Pool{Kernel: []int{2, 3}, Dilation: []int{3, 2}}},
	{x: []int{2, 4, 13}, c: Pool{Kernel: []int{4}, Padding: []int{2}, Divisor: 3}, ceil: true},
	{x: []int{1, 3, 5, 6, 7}, c: Pool{Kernel: []int{2, 3, 2}, Stride: []int{1, 2, 3}, Padding: []int{1, 1, 0},
		CountPadding: true}, ceil: true},
	{x: []int{2, 3, 7, 11}, c: Pool{Adaptive: true}, out: []int{3, 4}},
	{x: []int{2, 3, 7}, c: Pool{Adaptive: true}, out: []int{9}},
	{x: []int{1, 2, 5, 4, 6}, c: Pool{Adaptive: true}, out: []int{2, 4, 1}},
	{x: []int{0, 3, 5, 5}, c: Pool{Kernel: []int{2, 2}}},
	{x: []int{1, 3, 6, 7}, c: Pool{Kernel: []int{3, 3}, Stride: []int{1, 2}}, wide: true},
	{x: []int{1, 1, 1, 1}, c: Pool{Kernel: []int{1, 1}}},
}

// sizes are those of the result.
func (s *poolCase) sizes() []int {
	sizes := append([]int{}, s.x[:2]...)
	if s.c.Adaptive {
		return append(sizes, s.out...)
	}
	for k, kernel := range s.c.Kernel {
		stride, padding, dilation := kernel, 0, 1
		if s.c.Stride != nil {
			stride = s.c.Stride[k]
		}
		if s.c.Padding != nil {
			padding = s.c.Padding[k]
		}
		if s.c.Dilation != nil {
			dilation = s.c.Dilation[k]
		}
		room := s.x[2+k] + 2*padding - dilation*(kernel-1) - 1
		n := room/stride + 1
		if s.ceil {
			n = (room+stride-1)/stride + 1
			if (n-1)*stride >= s.x[2+k]+padding {
				n--
			}
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// Pools and their gradients, of every type and of several layouts, against PyTorch; the largest element may be NaN or
// there several times.
func TestPoolTorch(t *testing.T) {
	x := newComparison(t)
	flag := map[bool]string{false: "False", true: "True"}
	for k, s := range poolCases {
		for j, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16, dtype.Float16, dtype.Int64} {
			if !sampled(5*k+3*j, 46, 2) || s.c.Adaptive && !dt.IsFloating() {
				continue
			}
			layout := []int{inOrder, channelsLast, anyOrder}[(k+j)%3]
			if s.wide {
				layout = farApart
			}
			value := func(i int) float64 {
				if i%29 == 7 && dt.IsFloating() && j%2 == 0 {
					return math.NaN()
				}
				return float64(i * 7919 % 17)
			}
			grads := func(i int) float64 { return float64(i*31%13-6) / 4 }
			sizes, d := s.sizes(), len(s.x)-2
			for _, op := range []string{"max", "avg"} {
				if op == "avg" && len(s.x) == 5 && dt.Size() == 2 {
					continue // PyTorch has none
				}
				if op == "avg" && (s.c.Dilation != nil || !dt.IsFloating()) || op == "max" && s.c.Divisor != 0 && j > 0 {
					continue
				}
				o := x.operation(dt)
				in, grad := o.in(dt, layout, value, s.x...), o.in(dt, layout, grads, sizes...)
				out := o.out(dt, layout, sizes...)
				var index, gradIn *array
				c := s.c
				call := fmt.Sprintf("F.%s_pool%dd(a, %s, %s, %s, ", op, d, listOf(c.Kernel, d, 1), listOf(c.Stride, d, 1),
					listOf(c.Padding, d, 0))
				if c.Stride == nil {
					call = strings.Replace(call, listOf(nil, d, 1)+", "+listOf(c.Padding, d, 0), "None, "+listOf(c.Padding, d, 0), 1)
				}
				switch {
				case c.Adaptive:
					call = fmt.Sprintf("F.adaptive_%s_pool%dd(a, %s", op, d, listOf(s.out, d, 1))
					if op == "max" {
						call += ", return_indices=True"
					}
				case op == "max":
					c.Divisor, c.CountPadding = 0, false
					call += fmt.Sprintf("%s, %s, return_indices=True", listOf(c.Dilation, d, 1), flag[s.ceil])
				default:
					call += flag[s.ceil] + ", " + flag[c.CountPadding]
					if c.Divisor > 0 && d > 1 {
						call += fmt.Sprintf(", divisor_override=%d", c.Divisor)
					} else {
						c.Divisor = 0
					}
				}
				call += ")"
				results := "(y,)"
				if op == "max" {
					index = o.out(dtype.Int64, layout, sizes...)
					call = "y, i = " + call
					results = "(y, i)"
				} else {
					call = "y = " + call
				}
				before := ""
				backward := dt.IsFloating()
				if backward {
					gradIn = o.out(dt, layout, s.x...)
					before = "a.requires_grad_(); "
					call += "; y.backward(b)"
					results = results[:len(results)-1] + ", a.grad)"
					results = strings.Replace(results, ",, ", ", ", 1)
				}
				if op == "avg" {
					o.run(fmt.Sprintf("avg_pool %d of %v", k, s.x), before+call+"; "+results, 4*tolerance(dt), func(p *Plan) error {
						if err := p.AveragePool(out.Operand, in.Operand, &c); err != nil || !backward {
							return err
						}
						return p.AveragePoolBackward(gradIn.Operand, grad.Operand, &c)
					})
					continue
				}
				o.run(fmt.Sprintf("%s_pool %d of %v", op, k, s.x), before+call+"; "+results, 4*tolerance(dt), func(p *Plan) error {
					if err := p.MaxPool(out.Operand, index.Operand, in.Operand, &c); err != nil || !backward {
						return err
					}
					return p.MaxPoolBackward(gradIn.Operand, grad.Operand, index.Operand, &c)
				})
			}
		}
	}
	x.done()
}

// Elements are put at the indexes of a pool, and taken from there, against PyTorch.
func TestUnpoolTorch(t *testing.T) {
	x := newComparison(t)
	for k, sizes := range [][]int{{2, 3, 4, 5}, {2, 3, 6}, {1, 2, 2, 3, 4}} {
		if !sampled(k, 6, 1) {
			continue
		}
		d := len(sizes) - 2
		o := x.operation(dtype.Float32)
		n := 1
		large := append([]int{}, sizes[:2]...)
		for _, s := range sizes[2:] {
			n *= s
			large = append(large, 2*s)
		}
		in := o.in(dtype.Float32, anyOrder, func(i int) float64 { return float64(i) }, sizes...)
		at := o.in(dtype.Int64, anyOrder, func(i int) float64 { return float64(i * 7 % n * (1 << d)) }, sizes...)
		grad := o.in(dtype.Float32, inOrder, func(i int) float64 { return float64(i) / 2 }, large...)
		out, gradIn := o.out(dtype.Float32, inOrder, large...), o.out(dtype.Float32, anyOrder, sizes...)
		o.run(fmt.Sprintf("max_unpool of %v", sizes), fmt.Sprintf("a.requires_grad_(); y = F.max_unpool%dd(a, b, 2); "+
			"y.backward(c); (y, a.grad)", d), 0, func(p *Plan) error {
			if err := p.MaxUnpool(out.Operand, in.Operand, at.Operand, 0); err != nil {
				return err
			}
			return p.MaxUnpoolBackward(gradIn.Operand, grad.Operand, at.Operand, 0)
		})
	}
	x.done()
}
