package kernels

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
)

// Operations on rows: softmax, normalizations, losses.

type softmax struct {
	Op  string
	Out kernel.Operand `row:"out"`
	In  kernel.Operand
	Dim int
}

func (x *softmax) add(p *kernel.Plan) error { return p.Softmax(x.Op, x.Out, x.In, x.Dim) }

type softmaxBackward struct {
	Op           string
	Out          kernel.Operand `row:"out"`
	Grad, Result kernel.Operand
	Dim          int
}

func (x *softmaxBackward) add(p *kernel.Plan) error {
	return p.SoftmaxBackward(forward(x.Op), x.Out, x.Grad, x.Result, x.Dim)
}

// forward is the name of what a backward operation is of.
func forward(op string) string { return op[:len(op)-len("_backward")] }

// groups are those of channels.
type groups struct {
	Groups, Channels, Inner int `row:"optional"`
}

type norm struct {
	Op           string
	Out          kernel.Operand `row:"out"`
	Mean         kernel.Operand `row:"out,optional"`
	Rstd         kernel.Operand `row:"out"`
	In           kernel.Operand
	Weight, Bias kernel.Operand `row:"optional"`
	Eps          float64
	groups

	of kernel.Norm
}

func (x *norm) add(p *kernel.Plan) error {
	x.of = kernel.Norm{Mean: x.Mean, Rstd: x.Rstd, Weight: x.Weight, Bias: x.Bias, Groups: x.Groups, Channels: x.Channels,
		Inner: x.Inner}
	return p.Normalize(x.Op, x.Out, x.In, &x.of, x.Eps)
}

type normBackward struct {
	Op                           string
	GradIn, GradWeight, GradBias kernel.Operand `row:"out,optional"`
	Grad, In                     kernel.Operand
	Mean                         kernel.Operand `row:"optional"`
	Rstd                         kernel.Operand
	Weight                       kernel.Operand `row:"optional"`
	groups

	of kernel.Norm
}

func (x *normBackward) add(p *kernel.Plan) error {
	op := forward(x.Op)
	x.of = kernel.Norm{Mean: x.Mean, Rstd: x.Rstd, Weight: x.Weight, Groups: x.Groups, Channels: x.Channels,
		Inner: x.Inner}
	if x.GradIn.Type != dtype.Invalid {
		if err := p.NormalizeBackward(op, x.GradIn, x.Grad, x.In, &x.of); err != nil {
			return err
		}
	}
	if x.GradWeight.Type == dtype.Invalid && x.GradBias.Type == dtype.Invalid {
		return nil
	}
	return p.NormalizeWeights(op, x.GradWeight, x.GradBias, x.Grad, x.In, &x.of)
}

type batchNorm struct {
	Out                                   kernel.Operand `row:"out"`
	Mean, Rstd                            kernel.Operand `row:"out,optional"`
	In                                    kernel.Operand
	Weight, Bias, RunningMean, RunningVar kernel.Operand `row:"optional"`
	Momentum, Eps                         float64
	Training                              bool

	of kernel.BatchNorm
}

func (x *batchNorm) add(p *kernel.Plan) error {
	x.of = kernel.BatchNorm{Weight: x.Weight, Bias: x.Bias, RunningMean: x.RunningMean, RunningVar: x.RunningVar,
		SavedMean: x.Mean, SavedRstd: x.Rstd, Training: x.Training, Momentum: x.Momentum, Eps: x.Eps}
	return p.BatchNorm(x.Out, x.In, &x.of)
}

type batchNormBackward struct {
	GradIn, GradWeight, GradBias                kernel.Operand `row:"out,optional"`
	Grad, In                                    kernel.Operand
	Weight, RunningMean, RunningVar, Mean, Rstd kernel.Operand `row:"optional"`
	Eps                                         float64
	Training                                    bool

	of kernel.BatchNorm
}

func (x *batchNormBackward) add(p *kernel.Plan) error {
	x.of = kernel.BatchNorm{Weight: x.Weight, RunningMean: x.RunningMean, RunningVar: x.RunningVar, SavedMean: x.Mean,
		SavedRstd: x.Rstd, Training: x.Training, Eps: x.Eps}
	return p.BatchNormBackward(x.GradIn, x.GradWeight, x.GradBias, x.Grad, x.In, &x.of)
}

// classes are what a loss of classes is about.
type classes struct {
	Dim, Averaging, Ignore int
	Bad                    device.Ptr

	of kernel.NLL
}

// loss describes it.
func (c *classes) loss(weight kernel.Operand) (*kernel.NLL, error) {
	if c.Averaging < 0 || c.Averaging > int(kernel.Sum) {
		return nil, fmt.Errorf("%w: averaging %d", ErrArguments, c.Averaging)
	}
	c.of = kernel.NLL{Class: c.Dim, Averaging: kernel.Averaging(c.Averaging), Ignore: int64(c.Ignore),
		Weight: weight, Bad: c.Bad}
	return &c.of, nil
}

type nll struct {
	Out, Total kernel.Operand `row:"out"`
	In, Target kernel.Operand
	Weight     kernel.Operand `row:"optional"`
	classes
}

func (x *nll) add(p *kernel.Plan) error {
	l, err := x.loss(x.Weight)
	if err != nil {
		return err
	}
	return p.NLL(x.Out, x.Total, x.In, x.Target, l)
}

type nllBackward struct {
	Out          kernel.Operand `row:"out"`
	Grad, Target kernel.Operand
	Weight       kernel.Operand `row:"optional"`
	Total        kernel.Operand
	classes
}

func (x *nllBackward) add(p *kernel.Plan) error {
	l, err := x.loss(x.Weight)
	if err != nil {
		return err
	}
	return p.NLLBackward(x.Out, x.Grad, x.Target, x.Total, l)
}
