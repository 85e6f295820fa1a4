package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// The parts of normalizations that are operations on single elements.
const (
	normalized   = `template <typename T> T normalized(T g, T x, T mean, T rstd) { return g * (x - mean) * rstd; }`
	scaledSquare = `template <typename T> T scaled_square(T g, T x, T rstd) { return g * x * rstd; }`
	centered     = `template <typename T> T centered(T g, T x, T mean) { return g * (x - mean); }`
	inverseRoot  = `template <typename T> T inverse_root(T x, T eps) { return 1 / sqrt(x + eps); }`
	moving       = `template <typename T> T moving(T old, T x, T momentum, T factor) {
	return old + momentum * (x * factor - old);
}`
	batchNorm = `template <typename T> T batch_norm(T x, T mean, T rstd, T w, T b) { return (x - mean) * rstd * w + b; }`
	batchGrad = `template <typename T> T batch_norm_backward(T g, T x, T mean, T rstd, T w, T sum, T dot, T n) {
	return w * rstd * (g - sum / n - (x - mean) * rstd * rstd * dot / n);
}`
	product3 = `template <typename T> T product3(T a, T b, T c) { return a * b * c; }`
)

// temporary is scratch memory as a dense tensor.
func (p *Plan) temporary(t dtype.DType, sizes ...int) (Operand, error) {
	o := Operand{Type: t, Sizes: sizes, Strides: Dense(sizes...)}
	var err error
	o.Ptr, err = p.scratch(max(o.Count(), 1) * t.Size())
	return o, err
}

// viewed is an operand of elements one after the other with other sizes, dense or broadcast along dimensions of size 1.
func viewed(o Operand, sizes ...int) Operand {
	o.Sizes, o.Strides = sizes, Dense(sizes...)
	return o
}

// NormalizeWeights adds the gradients of the weight and the bias of a normalization of matrices: rows of the last of
// two dimensions. Either result may be the zero Operand. It needs scratch memory of the input's size.
func (p *Plan) NormalizeWeights(op string, weight, bias, grad, in Operand, n *Norm) error {
	if len(in.Sizes) != 2 || len(grad.Sizes) != 2 {
		return fmt.Errorf("kernel: the gradients of weights of %v and %v, which must be matrices", grad.Sizes, in.Sizes)
	}
	rows, length := in.Sizes[0], in.Sizes[1]
	groups, channels, inner := 1, length, 1
	if n.Inner > 0 {
		groups, channels, inner = max(n.Groups, 1), n.Channels, n.Inner
	}
	if rows%groups != 0 || channels*inner != length {
		return fmt.Errorf("kernel: rows of %d elements in %d channels of %d, %d rows in groups of %d", length, channels, inner,
			rows, groups)
	}
	sizes := []int{rows / groups, groups, channels, inner}
	split := func(o Operand) Operand {
		o.Strides = []int{o.Strides[0] * groups, o.Strides[0], o.Strides[1] * inner, o.Strides[1]}
		o.Sizes = sizes
		return o
	}
	grad, in = split(grad), split(in)
	compute := text.Opmath(in.Type)
	sum := func(to, of Operand) error {
		return p.Reduce("sum", compute, []Operand{viewed(to, 1, groups, channels, 1)}, of, []int{0, 3})
	}
	if bias.Type != dtype.Invalid {
		if err := sum(bias, grad); err != nil {
			return err
		}
	}
	if weight.Type == dtype.Invalid {
		return nil
	}
	t, err := p.temporary(compute, sizes...)
	if err != nil {
		return err
	}
	rstd := viewed(n.Rstd, sizes[0], groups, 1, 1)
	if op == "rms_norm" {
		err = p.Elementwise(scaledSquare, compute, []Operand{t}, []Operand{grad, in, rstd})
	} else {
		err = p.Elementwise(normalized, compute, []Operand{t},
			[]Operand{grad, in, viewed(n.Mean, sizes[0], groups, 1, 1), rstd})
	}
	if err != nil {
		return err
	}
	return sum(weight, t)
}

// BatchNorm is a normalization of channels, the second of three dimensions, over the others.
type BatchNorm struct {
	Weight, Bias            Operand // one element a channel; the zero Operand: none
	RunningMean, RunningVar Operand // likewise
	SavedMean, SavedRstd    Operand // of the batch, for backward; results of forward in training
	Training                bool    // normalize by the batch, else by what runs
	Momentum, Eps           float64
}

// orNumber is a channel's operand, broadcast, or a number if there's none.
func (b *BatchNorm) orNumber(o Operand, channels int, v int64, t dtype.DType) Operand {
	if o.Type == dtype.Invalid {
		return Operand{Type: t, Value: Int(v)}
	}
	return viewed(o, 1, channels, 1)
}

// BatchNorm adds the normalization. In training the running statistics follow the batch's, if there are any.
func (p *Plan) BatchNorm(out, in Operand, b *BatchNorm) error {
	if len(in.Sizes) != 3 {
		return fmt.Errorf("kernel: batch_norm of %d dimensions, of which there must be 3", len(in.Sizes))
	}
	channels, compute := in.Sizes[1], text.Opmath(in.Type)
	each := func(o Operand) Operand { return viewed(o, 1, channels, 1) }
	mean, rstd := each(b.RunningMean), Operand{}
	var err error
	if b.Training {
		n := in.Sizes[0] * in.Sizes[2]
		mean = each(b.SavedMean)
		variance, err := p.temporary(compute, 1, channels, 1)
		if err != nil {
			return err
		}
		exact, err := p.temporary(compute, 1, channels, 1)
		if err != nil {
			return err
		}
		if err := p.Reduce("var_mean", compute, []Operand{variance, exact}, in, []int{0, 2}, Float(0)); err != nil {
			return err
		}
		if err := p.Copy(mean, exact); err != nil {
			return err
		}
		rstd = each(b.SavedRstd)
		if err := p.Elementwise(inverseRoot, compute, []Operand{rstd}, []Operand{variance}, Float(b.Eps)); err != nil {
			return err
		}
		unbiased := float64(n) / float64(max(n-1, 1))
		for k, running := range []Operand{b.RunningMean, b.RunningVar} {
			if running.Type == dtype.Invalid {
				continue
			}
			x, factor := exact, 1.0
			if k == 1 {
				x, factor = variance, unbiased
			}
			if err := p.Elementwise(moving, compute, []Operand{each(running)}, []Operand{each(running), x}, Float(b.Momentum),
				Float(factor)); err != nil {
				return err
			}
		}
	} else if rstd, err = p.rstd(b, channels, compute); err != nil {
		return err
	}
	return p.Elementwise(batchNorm, compute, []Operand{out}, []Operand{in, mean, rstd,
		b.orNumber(b.Weight, channels, 1, in.Type), b.orNumber(b.Bias, channels, 0, in.Type)})
}

// rstd computes what's multiplied by of the running variance.
func (p *Plan) rstd(b *BatchNorm, channels int, compute dtype.DType) (Operand, error) {
	rstd, err := p.temporary(compute, 1, channels, 1)
	if err != nil {
		return rstd, err
	}
	return rstd, p.Elementwise(inverseRoot, compute, []Operand{rstd}, []Operand{viewed(b.RunningVar, 1, channels, 1)},
		Float(b.Eps))
}

// BatchNormBackward adds the gradients of the input, the weight and the bias; each may be the zero Operand.
func (p *Plan) BatchNormBackward(gradIn, gradWeight, gradBias, grad, in Operand, b *BatchNorm) error {
	if len(in.Sizes) != 3 || len(grad.Sizes) != 3 {
		return fmt.Errorf("kernel: batch_norm_backward of %d dimensions, of which there must be 3", len(in.Sizes))
	}
	channels, compute, n := in.Sizes[1], text.Opmath(in.Type), in.Sizes[0]*in.Sizes[2]
	each := func(o Operand) Operand { return viewed(o, 1, channels, 1) }
	mean, rstd := each(b.SavedMean), each(b.SavedRstd)
	var err error
	if !b.Training {
		mean = each(b.RunningMean)
		if rstd, err = p.rstd(b, channels, compute); err != nil {
			return err
		}
	}
	sums := [2]Operand{}
	for k := range sums {
		if sums[k], err = p.temporary(compute, 1, channels, 1); err != nil {
			return err
		}
	}
	t, err := p.temporary(compute, in.Sizes...)
	if err != nil {
		return err
	}
	if err := p.Elementwise(centered, compute, []Operand{t}, []Operand{grad, in, mean}); err != nil {
		return err
	}
	for k, of := range []Operand{grad, t} {
		if err := p.Reduce("sum", compute, sums[k:k+1], of, []int{0, 2}); err != nil {
			return err
		}
	}
	if gradBias.Type != dtype.Invalid {
		if err := p.Copy(each(gradBias), sums[0]); err != nil {
			return err
		}
	}
	if gradWeight.Type != dtype.Invalid {
		if err := p.Elementwise("mul", compute, []Operand{each(gradWeight)}, []Operand{sums[1], rstd}); err != nil {
			return err
		}
	}
	weight := b.orNumber(b.Weight, channels, 1, in.Type)
	switch {
	case gradIn.Type == dtype.Invalid:
		return nil
	case b.Training:
		return p.Elementwise(batchGrad, compute, []Operand{gradIn}, []Operand{grad, in, mean, rstd, weight, sums[0], sums[1]},
			Int(int64(n)))
	}
	return p.Elementwise(product3, compute, []Operand{gradIn}, []Operand{grad, rstd, weight})
}
