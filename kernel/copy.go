package kernel

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/ops"
	"github.com/chorus-comms/chorus/kernel/text"
)

// Copy adds a copy of src to dst, to whose sizes it's broadcast, with a conversion if they have different types.
func (p *Plan) Copy(dst, src Operand) error {
	compute := dst.Type
	if src.Value == nil {
		compute = ops.Promote(dst.Type, src.Type)
	}
	p.one[0], p.one[1] = dst, src
	return p.Elementwise("copy", text.Opmath(compute), p.one[:1], p.one[1:2])
}

// Fill adds setting all elements to a number.
func (p *Plan) Fill(dst Operand, v *Number) error {
	return p.Copy(dst, Operand{Type: dst.Type, Value: v})
}

// Narrow is the part of an operand from index start to before end of a dimension.
func (o Operand) Narrow(dim, start, end int) Operand {
	o.Sizes = slices.Clone(o.Sizes)
	o.Sizes[dim] = end - start
	o.Ptr = o.Ptr.Add(start * o.Strides[dim] * o.Type.Size())
	return o
}

// Cat adds copies of tensors one after the other in a dimension of dst, which has room for exactly them. A split is
// copies of parts, by [Operand.Narrow], and a stack a Cat of operands of one more dimension.
func (p *Plan) Cat(dst Operand, dim int, srcs ...Operand) error {
	if dim < 0 || dim >= len(dst.Sizes) {
		return fmt.Errorf("kernel: cat in dimension %d of %d", dim, len(dst.Sizes))
	}
	total := 0
	for k := range srcs {
		if len(srcs[k].Sizes) != len(dst.Sizes) {
			return fmt.Errorf("kernel: cat of %v into %v", srcs[k].Sizes, dst.Sizes)
		}
		for d, n := range srcs[k].Sizes {
			if d != dim && n != dst.Sizes[d] {
				return fmt.Errorf("kernel: cat of %v into %v in dimension %d", srcs[k].Sizes, dst.Sizes, dim)
			}
		}
		total += srcs[k].Sizes[dim]
	}
	if total != dst.Sizes[dim] {
		return fmt.Errorf("kernel: cat of %d elements into %d in dimension %d", total, dst.Sizes[dim], dim)
	}
	at := 0
	for _, src := range srcs {
		if err := p.Copy(dst.Narrow(dim, at, at+src.Sizes[dim]), src); err != nil {
			return err
		}
		at += src.Sizes[dim]
	}
	return nil
}

// Flip adds a copy with the elements of dimensions in the opposite order.
func (p *Plan) Flip(dst, src Operand, dims ...int) error {
	src.Strides = slices.Clone(src.Strides)
	for _, d := range dims {
		if d < 0 || d >= len(src.Sizes) {
			return fmt.Errorf("kernel: flip of dimension %d of %d", d, len(src.Sizes))
		}
		src.Ptr = src.Ptr.Add((max(src.Sizes[d], 1) - 1) * src.Strides[d] * src.Type.Size())
		src.Strides[d] = -src.Strides[d]
	}
	return p.Copy(dst, src)
}

// Roll adds a copy with the elements of a dimension moved on by shift, which may be negative, around its end.
func (p *Plan) Roll(dst, src Operand, shift, dim int) error {
	if dim < 0 || dim >= len(src.Sizes) || !slices.Equal(dst.Sizes, src.Sizes) {
		return fmt.Errorf("kernel: roll of dimension %d of %v to %v", dim, src.Sizes, dst.Sizes)
	}
	n := src.Sizes[dim]
	if n == 0 {
		return nil
	}
	shift = (shift%n + n) % n
	if err := p.Copy(dst.Narrow(dim, shift, n), src.Narrow(dim, 0, n-shift)); err != nil || shift == 0 {
		return err
	}
	return p.Copy(dst.Narrow(dim, 0, shift), src.Narrow(dim, n-shift, n))
}

// Arange adds setting the elements, in the order of their indexes, to start, start+step and so on.
func (p *Plan) Arange(dst Operand, compute dtype.DType, start, step *Number) error {
	p.one[0] = dst
	return p.elementwise("arange", compute, p.one[:1], nil, []int{dst.Count()}, []*Number{start, step})
}

// Linspace adds setting the n elements to numbers from start to end at equal distances, counted from the nearer end.
func (p *Plan) Linspace(dst Operand, compute dtype.DType, start, end float64) error {
	n := dst.Count()
	step := (end - start) / float64(max(n-1, 1))
	p.one[0] = dst
	if n == 1 {
		end, step = start, 0 // an infinite step, times 0, would be NaN
	}
	return p.elementwise("linspace", compute, p.one[:1], nil, []int{n}, []*Number{Float(start), Float(end), Float(step)})
}

// Triangle adds a copy of the lower or upper triangles of matrices, the last two dimensions, with zeros in the rest.
// Diagonal k above the main one belongs to both.
func (p *Plan) Triangle(dst, src Operand, upper bool, k int) error {
	d := len(dst.Sizes)
	if d < 2 || dst.Type != src.Type {
		return fmt.Errorf("kernel: a triangle of %v of %d dimensions from %v", dst.Type, d, src.Type)
	}
	op := "tril"
	if upper {
		op = "triu"
	}
	p.one[0], p.one[1] = dst, src
	return p.elementwise(op, text.Opmath(dst.Type), p.one[:1], p.one[1:2], []int{dst.Sizes[d-1], dst.Sizes[d-2], k}, nil)
}

// Eye adds setting a matrix to ones on its diagonal and zeros elsewhere.
func (p *Plan) Eye(dst Operand) error {
	if len(dst.Sizes) != 2 {
		return fmt.Errorf("kernel: eye of %d dimensions", len(dst.Sizes))
	}
	p.one[0] = dst
	return p.elementwise("eye", text.Opmath(dst.Type), p.one[:1], nil, []int{dst.Sizes[1]}, nil)
}

// Pad adds a copy of a tensor of any dimensions within a border of a number. before[k] elements of the border stand
// before those of dimension k, and the rest of the result's behind them. A negative border takes elements away.
func (p *Plan) Pad(out, in Operand, before []int, value *Number) error {
	d := len(in.Sizes)
	if in.Value != nil || len(out.Sizes) != d || len(before) != d {
		return fmt.Errorf("kernel: pad of %v to %v with %v before", in.Sizes, out.Sizes, before)
	}
	if err := in.check("the input"); err != nil {
		return err
	}
	whole := true // the result has the input's sizes: no border
	inner := out
	for k, n := range before {
		from, to := max(n, 0), min(n+in.Sizes[k], out.Sizes[k])
		if from >= to {
			return p.Fill(out, value)
		}
		whole = whole && from == 0 && to == out.Sizes[k]
	}
	if !whole {
		if err := p.Fill(out, value); err != nil {
			return err
		}
	}
	for k, n := range before {
		from, to := max(n, 0), min(n+in.Sizes[k], out.Sizes[k])
		inner, in = inner.Narrow(k, from, to), in.Narrow(k, from-n, to-n)
	}
	return p.Copy(inner, in)
}

// PadImage adds images within a border of their own elements: mode is reflect, replicate or circular. before[k]
// elements of the border stand before those of dimension k of space. It's 1 to 3 dimensions behind batch and channels.
func (p *Plan) PadImage(mode string, out, in Operand, before []int) error {
	return p.padImage(mode, false, &out, &in, before)
}

// PadImageBackward adds the gradient of [Plan.PadImage] by its input.
func (p *Plan) PadImageBackward(mode string, gradIn, grad Operand, before []int) error {
	return p.padImage(mode, true, &grad, &gradIn, before)
}

func (p *Plan) padImage(mode string, backward bool, out, in *Operand, before []int) error {
	var m images
	if err := m.set("pad", in, out, nil); err != nil {
		return err
	}
	if len(before) != m.dims {
		return fmt.Errorf("kernel: pad of %v to %v with %v before", in.Sizes, out.Sizes, before)
	}
	limit := 0
	for k := range m.dims {
		n, border := m.in[k], before[k]
		switch mode {
		case "reflect":
			limit = n - 1
		case "circular":
			limit = n
		case "replicate":
			limit = max(border, m.out[k]-n-border)
		default:
			return fmt.Errorf("kernel: there is no border %q", mode)
		}
		if border > limit || m.out[k]-n-border > limit {
			return fmt.Errorf("kernel: a border of %d and %d elements, %s, of %d", border, m.out[k]-n-border, mode, n)
		}
		m.windows[k].padding = border
	}
	return p.resample(mode, &m, &[text.MaxSpatial]float64{}, backward, out, in)
}
