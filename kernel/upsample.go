package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
)

// Upsampling describes an interpolation between images of different sizes.
type Upsampling struct {
	// Mode is nearest, nearest_exact, linear or cubic: in each dimension of space, so that linear is PyTorch's bilinear
	// and trilinear, and cubic its bicubic.
	Mode string

	AlignCorners bool      // the corners of both images lie on each other, and not their borders
	Antialias    bool      // linear and cubic: an element that's smaller than those of the input is an average of them
	Scales       []float64 // how many times larger the result is, one for each dimension; nil or 0: by the sizes
}

// Upsample adds an interpolation.
func (p *Plan) Upsample(out, in Operand, u *Upsampling) error {
	return p.upsample(false, &out, &in, u)
}

// UpsampleBackward adds the gradient of [Plan.Upsample] by its input.
func (p *Plan) UpsampleBackward(gradIn, grad Operand, u *Upsampling) error {
	return p.upsample(true, &grad, &gradIn, u)
}

// upsampleOps are the names of resamplings by mode, with corners, and with antialias.
var upsampleOps = map[string][3]string{"nearest": {"nearest"}, "nearest_exact": {"nearest_exact"},
	"linear": {"linear", "linear_corners", "linear_smooth"}, "cubic": {"cubic", "cubic_corners", "cubic_smooth"}}

func (p *Plan) upsample(backward bool, out, in *Operand, u *Upsampling) error {
	ops, variant := upsampleOps[u.Mode], 0
	switch {
	case u.Antialias:
		variant = 2
	case u.AlignCorners:
		variant = 1
	}
	if ops[variant] == "" || u.AlignCorners && ops[1] == "" {
		return fmt.Errorf("kernel: there is no upsampling %q with align_corners=%v and antialias=%v", u.Mode, u.AlignCorners,
			u.Antialias)
	}
	var m images
	if err := m.set("upsampling", in, out, nil); err != nil {
		return err
	}
	if u.Scales != nil && len(u.Scales) != m.dims {
		return fmt.Errorf("kernel: upsampling in %d dimensions with scales %v", m.dims, u.Scales)
	}
	scale := [maxSpatial]float64{}
	for k := range m.dims {
		a, b := m.in[k], m.out[k]
		switch {
		case u.AlignCorners && b > 1:
			scale[k] = ratio(in.Type, a-1, b-1)
		case u.AlignCorners:
		case u.Scales != nil && u.Scales[k] > 0:
			scale[k] = 1 / u.Scales[k]
		case b > 0:
			scale[k] = ratio(in.Type, a, b)
		}
	}
	return p.resample(ops[variant], &m, &scale, backward, out, in)
}

// ratio is a / b as PyTorch computes it for elements of a type.
func ratio(t dtype.DType, a, b int) float64 {
	if resampleScale(Opmath(t)) == dtype.Float64 {
		return float64(a) / float64(b)
	}
	return float64(float32(a) / float32(b))
}
