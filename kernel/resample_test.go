package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
)

// Interpolations and their gradients, up and down, against PyTorch.
func TestUpsampleTorch(t *testing.T) {
	x := newComparison(t)
	cases := []struct {
		x, out []int
		u      Upsampling
	}{
		{[]int{2, 3, 5}, []int{12}, Upsampling{Mode: "nearest"}},
		{[]int{2, 3, 5, 7}, []int{10, 14}, Upsampling{Mode: "nearest"}},
		{[]int{2, 3, 6, 5}, []int{4, 9}, Upsampling{Mode: "nearest_exact"}},
		{[]int{1, 2, 3, 4, 5}, []int{5, 2, 7}, Upsampling{Mode: "nearest"}},
		{[]int{2, 3, 7}, []int{17}, Upsampling{Mode: "linear"}},
		{[]int{2, 3, 7}, []int{1}, Upsampling{Mode: "linear", AlignCorners: true}},
		{[]int{2, 3, 5, 8}, []int{9, 3}, Upsampling{Mode: "linear"}},
		{[]int{2, 3, 5, 8}, []int{9, 12}, Upsampling{Mode: "linear", AlignCorners: true}},
		{[]int{1, 3, 5, 8}, []int{12, 18}, Upsampling{Mode: "linear", Scales: []float64{2.5, 2.3}}},
		{[]int{1, 2, 3, 4, 5}, []int{5, 6, 3}, Upsampling{Mode: "linear"}},
		{[]int{2, 3, 5, 6}, []int{11, 4}, Upsampling{Mode: "cubic"}},
		{[]int{2, 3, 5, 6}, []int{8, 13}, Upsampling{Mode: "cubic", AlignCorners: true}},
		{[]int{2, 3, 11, 12}, []int{4, 20}, Upsampling{Mode: "linear", Antialias: true}},
		{[]int{2, 3, 11, 12}, []int{5, 7}, Upsampling{Mode: "cubic", Antialias: true}},
		{[]int{0, 3, 5, 6}, []int{8, 13}, Upsampling{Mode: "nearest"}},
		{[]int{1, 3, 4, 4}, []int{4, 4}, Upsampling{Mode: "cubic"}},
	}
	flag := map[bool]string{false: "False", true: "True"}
	for k, s := range cases {
		for j, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.BFloat16, dtype.Uint8} {
			if !sampled(5*k+3*j, 62, 2) || dt == dtype.Uint8 && s.u.Mode[0] != 'n' ||
				dt == dtype.BFloat16 && s.u.Antialias { // PyTorch has none
				continue
			}
			layout, d := []int{inOrder, channelsLast, anyOrder, farApart}[(k+j)%4], len(s.out)
			sizes := append(append([]int{}, s.x[:2]...), s.out...)
			value := func(i int) float64 { return float64(i * 7919 % 17) }
			o := x.operation(dt)
			in, grad := o.in(dt, layout, value, s.x...), o.in(dt, layout, value, sizes...)
			out := o.out(dt, layout, sizes...)
			mode := map[string]string{"nearest": "nearest", "nearest_exact": "nearest-exact", "cubic": "bicubic",
				"linear": []string{"linear", "bilinear", "trilinear"}[d-1]}[s.u.Mode]
			size := "size=" + listOf(s.out, d, 1)
			if s.u.Scales != nil {
				size = "scale_factor=" + strings.ReplaceAll(fmt.Sprint(s.u.Scales), " ", ", ")
			}
			call := fmt.Sprintf("y = F.interpolate(a, %s, mode='%s'", size, mode)
			if s.u.Mode[0] != 'n' {
				call += ", align_corners=" + flag[s.u.AlignCorners] + ", antialias=" + flag[s.u.Antialias]
			}
			call += "); "
			results := "(y,)"
			var gradIn *array
			if dt.IsFloating() {
				gradIn = o.out(dt, layout, s.x...)
				call = "a.requires_grad_(); " + call + "y.backward(b); "
				results = "(y, a.grad)"
			}
			close := 10 * tolerance(dt)
			if dt == dtype.BFloat16 {
				close *= 2 // PyTorch adds gradients in 16 bits
			}
			o.run(fmt.Sprintf("%+v of %v to %v", s.u, s.x, s.out), call+results, close, func(p *Plan) error {
				if err := p.Upsample(out.Operand, in.Operand, &s.u); err != nil || gradIn == nil {
					return err
				}
				return p.UpsampleBackward(gradIn.Operand, grad.Operand, &s.u)
			})
		}
	}
	x.done()
}

// Borders and their gradients against PyTorch.
func TestPadTorch(t *testing.T) {
	x := newComparison(t)
	cases := []struct {
		mode string
		x    []int
		pads []int // before and behind, of each dimension from the first one of space
	}{
		{"reflect", []int{2, 3, 7}, []int{3, 6}},
		{"reflect", []int{2, 3, 4, 5}, []int{1, 2, 4, 0}},
		{"reflect", []int{1, 2, 3, 4, 5}, []int{1, 2, 3, 2, 0, 4}},
		{"replicate", []int{2, 3, 4}, []int{5, 7}},
		{"replicate", []int{2, 3, 1, 5}, []int{1, 2, 4, 0}},
		{"replicate", []int{1, 2, 3, 4, 5}, []int{1, 2, 3, 2, 0, 4}},
		{"circular", []int{2, 3, 4}, []int{4, 2}},
		{"circular", []int{2, 3, 4, 5}, []int{1, 2, 0, 5}},
		{"circular", []int{1, 2, 3, 4, 5}, []int{1, 2, 3, 2, 0, 4}},
		{"constant", []int{2, 3, 4, 5}, []int{1, 2, -1, 3}},
		{"constant", []int{2, 3, 4, 5}, []int{0, 0, -2, -1}},
		{"reflect", []int{0, 3, 4, 5}, []int{1, 2, 3, 2}},
	}
	for k, s := range cases {
		for j, dt := range []dtype.DType{dtype.Float32, dtype.Complex64, dtype.BFloat16, dtype.Float64} {
			if !sampled(5*k+3*j, 58, 2) {
				continue
			}
			layout, d := []int{inOrder, channelsLast, anyOrder, farApart}[(k+j)%4], len(s.x)-2
			sizes, before, list := append([]int{}, s.x...), []int{}, []int{}
			for k := range d {
				sizes[2+k] += s.pads[2*k] + s.pads[2*k+1]
				before = append(before, s.pads[2*k])
				list = append(list, s.pads[2*(d-1-k)], s.pads[2*(d-1-k)+1])
			}
			value := func(i int) float64 { return float64(i*7919%17) / 4 }
			o := x.operation(dt)
			in, grad := o.in(dt, layout, value, s.x...), o.in(dt, layout, value, sizes...)
			out, gradIn := o.out(dt, layout, sizes...), o.out(dt, layout, s.x...)
			call := fmt.Sprintf("a.requires_grad_(); y = F.pad(a, %s, mode='%s'); y.backward(b); (y, a.grad)",
				listOf(list, 2*d, 0), s.mode)
			o.run(fmt.Sprintf("pad %s of %v by %v", s.mode, s.x, s.pads), call, 4*tolerance(dt), func(p *Plan) error {
				if s.mode == "constant" {
					minus := []int{0, 0}
					for _, n := range before {
						minus = append(minus, -n)
					}
					if err := p.Pad(out.Operand, in.Operand, append([]int{0, 0}, before...), Int(0)); err != nil {
						return err
					}
					return p.Pad(gradIn.Operand, grad.Operand, minus, Int(0))
				}
				if err := p.PadImage(s.mode, out.Operand, in.Operand, before); err != nil {
					return err
				}
				return p.PadImageBackward(s.mode, gradIn.Operand, grad.Operand, before)
			})
		}
	}
	x.done()
}

// Columns of windows, and images of columns, against PyTorch's unfold and fold.
func TestColumnsTorch(t *testing.T) {
	x := newComparison(t)
	for k, c := range []Pool{{Kernel: []int{2, 3}}, {Kernel: []int{3, 2}, Stride: []int{2, 1}, Padding: []int{1, 2}},
		{Kernel: []int{2, 2}, Stride: []int{1, 3}, Dilation: []int{3, 2}}} {
		for j, dt := range []dtype.DType{dtype.Float32, dtype.Complex64, dtype.BFloat16} {
			if !sampled(5*k+3*j, 22, 1) {
				continue
			}
			layout := []int{inOrder, channelsLast, anyOrder}[(k+j)%3]
			sizes := []int{2, 3, 8, 9}
			columns := []int{2, 3, c.Kernel[0], c.Kernel[1]}
			one := func(list []int, i, none int) int {
				if list == nil {
					return none
				}
				return list[i]
			}
			for i := range 2 {
				columns = append(columns,
					(sizes[2+i]+2*one(c.Padding, i, 0)-one(c.Dilation, i, 1)*(c.Kernel[i]-1)-1)/one(c.Stride, i, 1)+1)
			}
			value := func(i int) float64 { return float64(i*7919%17) / 4 }
			o := x.operation(dt)
			in, cols := o.in(dt, layout, value, sizes...), o.in(dt, layout, value, columns...)
			out, sum := o.out(dt, layout, columns...), o.out(dt, layout, sizes...)
			numbers := fmt.Sprintf("%s, %s, %s, %s", listOf(c.Kernel, 2, 1), listOf(c.Dilation, 2, 1), listOf(c.Padding, 2, 0),
				listOf(c.Stride, 2, 1))
			expression := fmt.Sprintf("(F.unfold(a, %s), F.fold(b.reshape(2, %d, %d), [8, 9], %[1]s))", numbers,
				3*c.Kernel[0]*c.Kernel[1], columns[4]*columns[5])
			o.run(fmt.Sprintf("columns %d", k), expression, 4*tolerance(dt), func(p *Plan) error {
				if err := p.Im2col(out.Operand, in.Operand, &c); err != nil {
					return err
				}
				return p.Col2im(sum.Operand, cols.Operand, &c)
			})
		}
	}
	x.done()
}
