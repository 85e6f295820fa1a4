package kernels

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel"
)

// Operations on images, which have the dimensions batch and channels, and 1 to 3 of space. Lists of integers have one of
// each dimension of space.

// convolved is how a filter lies on images.
type convolved struct {
	Transposed                bool
	Groups                    int
	Stride, Padding, Dilation []int

	of kernel.Convolution
}

func (c *convolved) filter() *kernel.Convolution {
	c.of = kernel.Convolution{Transposed: c.Transposed, Groups: c.Groups, Stride: c.Stride, Padding: c.Padding,
		Dilation: c.Dilation}
	return &c.of
}

type convolution struct {
	Out        kernel.Operand `row:"out"`
	In, Weight kernel.Operand
	Bias       kernel.Operand `row:"optional"`
	convolved
}

func (x *convolution) add(p *kernel.Plan) error {
	return p.Convolution(x.Out, x.In, x.Weight, x.Bias, x.filter())
}

type convolutionBackward struct {
	GradIn, GradWeight, GradBias kernel.Operand `row:"out,optional"`
	Grad, In, Weight             kernel.Operand
	convolved
}

func (x *convolutionBackward) add(p *kernel.Plan) error {
	return p.ConvolutionBackward(x.GradIn, x.GradWeight, x.GradBias, x.Grad, x.In, x.Weight, x.filter())
}

// windowed is how the windows of a pool lie on images.
type windowed struct {
	CountPadding                      bool
	Divisor                           int
	Window, Stride, Padding, Dilation []int

	of kernel.Pool
}

func (w *windowed) pool() *kernel.Pool {
	w.of = kernel.Pool{CountPadding: w.CountPadding, Divisor: w.Divisor, Adaptive: len(w.Window) == 0, Kernel: w.Window,
		Stride: w.Stride, Padding: w.Padding, Dilation: w.Dilation}
	return &w.of
}

type maxPool struct {
	Out, Indexes kernel.Operand `row:"out"`
	In           kernel.Operand
	windowed
}

func (x *maxPool) add(p *kernel.Plan) error { return p.MaxPool(x.Out, x.Indexes, x.In, x.pool()) }

type maxPoolBackward struct {
	Out           kernel.Operand `row:"out"`
	Grad, Indexes kernel.Operand
	windowed
}

func (x *maxPoolBackward) add(p *kernel.Plan) error {
	return p.MaxPoolBackward(x.Out, x.Grad, x.Indexes, x.pool())
}

type windows struct {
	Op  string
	Out kernel.Operand `row:"out"`
	In  kernel.Operand
	windowed
}

func (x *windows) add(p *kernel.Plan) error {
	w := x.pool()
	switch x.Op {
	case "average":
		w.Dilation = nil
		return p.AveragePool(x.Out, x.In, w)
	case "average_backward":
		w.Dilation = nil
		return p.AveragePoolBackward(x.Out, x.In, w)
	case "im2col":
		return p.Im2col(x.Out, x.In, w)
	}
	return p.Col2im(x.Out, x.In, w)
}

type maxUnpool struct {
	Op          string
	Out         kernel.Operand `row:"out"`
	In, Indexes kernel.Operand
	Bad         device.Ptr
}

func (x *maxUnpool) add(p *kernel.Plan) error {
	if x.Op == "max_unpool" {
		return p.MaxUnpool(x.Out, x.In, x.Indexes, x.Bad)
	}
	return p.MaxUnpoolBackward(x.Out, x.In, x.Indexes, x.Bad)
}

type upsample struct {
	Op                      string
	Out                     kernel.Operand `row:"out"`
	In                      kernel.Operand
	Scales                  []float64
	AlignCorners, Antialias bool

	of kernel.Upsampling
}

// spatial is how many dimensions of space images have at most.
const spatial = 3

func (x *upsample) add(p *kernel.Plan) error {
	mode, backward := strings.CutSuffix(x.Op, "_backward")
	x.of = kernel.Upsampling{Mode: mode, AlignCorners: x.AlignCorners, Antialias: x.Antialias}
	if n := len(x.Scales); n > 0 && n <= spatial {
		x.of.Scales = x.Scales
	}
	if backward {
		return p.UpsampleBackward(x.Out, x.In, &x.of)
	}
	return p.Upsample(x.Out, x.In, &x.of)
}

type pad struct {
	Op     string
	Out    kernel.Operand `row:"out"`
	In     kernel.Operand
	Before []int
}

func (x *pad) add(p *kernel.Plan) error {
	mode, backward := strings.CutSuffix(x.Op, "_backward")
	if backward {
		return p.PadImageBackward(mode, x.Out, x.In, x.Before)
	}
	return p.PadImage(mode, x.Out, x.In, x.Before)
}

// gridded is how samples of a grid are taken.
type gridded struct {
	Border       int
	AlignCorners bool

	of kernel.GridSampling
}

func (g *gridded) samples(op string) (*kernel.GridSampling, error) {
	borders := [...]string{"zeros", "border", "reflection"}
	if g.Border < 0 || g.Border >= len(borders) {
		return nil, fmt.Errorf("%w: border %d of a grid", ErrArguments, g.Border)
	}
	mode, _ := strings.CutSuffix(op, "_backward")
	g.of = kernel.GridSampling{Mode: mode, Border: borders[g.Border], AlignCorners: g.AlignCorners}
	return &g.of, nil
}

type gridSample struct {
	Op       string
	Out      kernel.Operand `row:"out"`
	In, Grid kernel.Operand
	gridded
}

func (x *gridSample) add(p *kernel.Plan) error {
	g, err := x.samples(x.Op)
	if err != nil {
		return err
	}
	return p.GridSample(x.Out, x.In, x.Grid, g)
}

type gridSampleBackward struct {
	Op               string
	GradIn, GradGrid kernel.Operand `row:"out,optional"`
	Grad, In, Grid   kernel.Operand
	gridded
	Atomics bool `row:"optional"`
}

func (x *gridSampleBackward) add(p *kernel.Plan) error {
	g, err := x.samples(x.Op)
	if err != nil {
		return err
	}
	p.Atomics = x.Atomics
	return p.GridSampleBackward(x.GradIn, x.GradGrid, x.Grad, x.In, x.Grid, g)
}
