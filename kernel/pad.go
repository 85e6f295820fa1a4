package kernel

import "fmt"

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
	return p.resample(mode, &m, &[maxSpatial]float64{}, backward, out, in)
}
