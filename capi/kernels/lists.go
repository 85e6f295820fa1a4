package kernels

import (
	"errors"
	"fmt"

	"github.com/chorus-comms/chorus/kernel"
)

// Operations on lists: the tensors of a list are operands one after the other, and lists follow each other.

type foreach struct {
	computed
	OutLists, InLists, NumberLists int
	Lengths                        []int

	outs, ins [][]kernel.Operand // memory that is used again
	numbers   [][]*kernel.Number
}

func (x *foreach) add(p *kernel.Plan) error {
	if x.OutLists < 0 || x.InLists < 0 || x.NumberLists < 0 || x.OutLists+x.InLists+x.NumberLists != len(x.Lengths) {
		return fmt.Errorf("%w: foreach %s has %d, %d and %d lists, with the lengths %v", ErrArguments, x.Op, x.OutLists, x.InLists,
			x.NumberLists, x.Lengths)
	}
	var errs [3]error
	x.outs, errs[0] = divided(x.outs, x.Outs, x.Lengths[:x.OutLists])
	x.ins, errs[1] = divided(x.ins, x.Ins, x.Lengths[x.OutLists:][:x.InLists])
	x.numbers, errs[2] = divided(x.numbers, x.Numbers, x.Lengths[x.OutLists+x.InLists:])
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return p.Foreach(x.Op, x.Compute, x.outs, x.ins, x.numbers...)
}

// divided is a list as lists of these lengths.
func divided[T any](lists [][]T, all []T, lengths []int) ([][]T, error) {
	lists = lists[:0]
	for _, n := range lengths {
		if n < 0 || n > len(all) {
			return nil, fmt.Errorf("%w: a list of %d of the %d that there are", ErrArguments, n, len(all))
		}
		lists, all = append(lists, all[:n]), all[n:]
	}
	if len(all) > 0 {
		return nil, fmt.Errorf("%w: %d more than the lists have", ErrArguments, len(all))
	}
	return lists, nil
}

type foreachReduce struct{ computed }

func (x *foreachReduce) add(p *kernel.Plan) error {
	return p.ForeachReduce(x.Op, x.Compute, x.Outs, x.Ins, x.Numbers...)
}

type optimize struct {
	Op                                   string
	Outs                                 []kernel.Operand `row:"out"`
	FoundInf, GradScale, Rate            kernel.Operand   `row:"optional"`
	Steps                                []kernel.Operand
	Lr, WeightDecay, Momentum, Dampening float64
	Beta1, Beta2, Eps, LrDecay           float64
	Lists                                int
	Nesterov, Maximize, First            bool

	lists [][]kernel.Operand
}

func (x *optimize) add(p *kernel.Plan) error {
	if x.Lists < 2 || len(x.Outs)%x.Lists != 0 {
		return fmt.Errorf("%w: %s of %d tensors in %d lists", ErrArguments, x.Op, len(x.Outs), x.Lists)
	}
	each := len(x.Outs) / x.Lists
	if len(x.Steps) != 0 && len(x.Steps) != each {
		return fmt.Errorf("%w: %d numbers of steps for %d tensors", ErrArguments, len(x.Steps), each)
	}
	x.lists = x.lists[:0]
	for k := range x.Lists {
		x.lists = append(x.lists, x.Outs[k*each:][:each])
	}
	step := kernel.Step{LR: x.Lr, WeightDecay: x.WeightDecay, Momentum: x.Momentum, Dampening: x.Dampening, Beta1: x.Beta1,
		Beta2: x.Beta2, Eps: x.Eps, LRDecay: x.LrDecay, Nesterov: x.Nesterov, Maximize: x.Maximize, First: x.First,
		FoundInf: x.FoundInf, GradScale: x.GradScale, LRTensor: x.Rate}
	return p.Optimize(x.Op, &step, x.lists[0], x.lists[1], x.lists[2:], x.Steps)
}

type unscale struct {
	Grads             []kernel.Operand `row:"out"`
	FoundInf, Inverse kernel.Operand
}

func (x *unscale) add(p *kernel.Plan) error { return p.Unscale(x.Grads, x.FoundInf, x.Inverse) }

type updateScale struct {
	Scale, Tracker  kernel.Operand `row:"out"`
	FoundInf        kernel.Operand
	Growth, Backoff float64
	Interval        int
}

func (x *updateScale) add(p *kernel.Plan) error {
	return p.UpdateScale(x.Scale, x.Tracker, x.FoundInf, x.Growth, x.Backoff, x.Interval)
}
