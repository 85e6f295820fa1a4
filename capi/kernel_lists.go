//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel"
)

// kernelLists are the tensors and numbers of lists. Their memory is used again.
type kernelLists struct {
	outs, ins []kernel.Operand
	values    []kernel.Number
	numbers   []*kernel.Number

	outLists, inLists [][]kernel.Operand
	numberLists       [][]*kernel.Number
}

// mostListed is how many tensors lists have at most.
const mostListed = 1 << 20

// read takes the operands and numbers of a call.
func (x *kernelLists) read(k *C.chorus_kernel) error {
	if err := errors.Join(counted("operands", k.outs, k.n_outs, mostListed), counted("operands", k.ins, k.n_ins, mostListed),
		counted("numbers", k.numbers, k.n_numbers, mostListed),
		counted("integers", k.integers, k.n_integers, kernelIntegers)); err != nil {
		return err
	}
	x.outs, x.ins, x.values, x.numbers = x.outs[:0], x.ins[:0], x.values[:0], x.numbers[:0]
	for at, from := range [...][]C.chorus_operand{slice(k.outs, k.n_outs), slice(k.ins, k.n_ins)} {
		to := [...]*[]kernel.Operand{&x.outs, &x.ins}[at]
		for i := range from {
			o := &from[i]
			if o.number != nil {
				return refused("a number among lists of tensors")
			}
			operand, err := operandOf(o)
			if err != nil {
				return err
			}
			*to = append(*to, operand)
		}
	}
	list := slice(k.numbers, k.n_numbers)
	for i := range list {
		x.values = append(x.values, number(&list[i]))
	}
	for i := range x.values {
		x.numbers = append(x.numbers, &x.values[i])
	}
	return nil
}

// divided is a list of lists of these lengths.
func divided[T any](lists [][]T, all []T, lengths []C.int64_t) ([][]T, error) {
	lists = lists[:0]
	for _, n := range lengths {
		if n < 0 || int64(n) > int64(len(all)) {
			return nil, refused("a list of %d of the %d that there are", int64(n), len(all))
		}
		lists, all = append(lists, all[:n]), all[n:]
	}
	if len(all) > 0 {
		return nil, refused("%d more than the lists have", len(all))
	}
	return lists, nil
}

func (c *kernelCall) runLists(l *kernel.Loader, k *C.chorus_kernel) error {
	x := &c.lists
	defer func() { clear(x.outs); clear(x.ins) }()
	if err := x.read(k); err != nil {
		return err
	}
	names := kernelNames()[C.int32_t(k.kind)]
	if k.op < 1 || int(k.op) > len(names) {
		return refused("a kernel of kind %d and operation %d", int(k.kind), int(k.op))
	}
	op, n := names[k.op-1], slice(k.integers, k.n_integers)
	switch k.kind {
	case C.CHORUS_KERNEL_FOREACH:
		if len(n) < 3 || n[0] < 0 || n[1] < 0 || n[2] < 0 || int(n[0]+n[1]+n[2]) != len(n)-3 {
			return refused("lists of foreach %s: %v", op, n)
		}
		var errs [3]error
		x.outLists, errs[0] = divided(x.outLists, x.outs, n[3:][:n[0]])
		x.inLists, errs[1] = divided(x.inLists, x.ins, n[3+n[0]:][:n[1]])
		x.numberLists, errs[2] = divided(x.numberLists, x.numbers, n[3+n[0]+n[1]:])
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		return c.enqueue(l, c.plan.Foreach(op, dtype.DType(k.compute), x.outLists, x.inLists, x.numberLists...))
	case C.CHORUS_KERNEL_FOREACH_REDUCE:
		return c.enqueue(l, c.plan.ForeachReduce(op, dtype.DType(k.compute), x.outs, x.ins, x.numbers...))
	case C.CHORUS_KERNEL_UNSCALE:
		if len(x.ins) != 2 {
			return refused("unscale with %d inputs", len(x.ins))
		}
		return c.enqueue(l, c.plan.Unscale(x.outs, x.ins[0], x.ins[1]))
	}
	return c.optimize(l, op, n)
}

func (c *kernelCall) optimize(l *kernel.Loader, op string, n []C.int64_t) error {
	x := &c.lists
	if len(n) != 4 || len(x.numbers) != 8 || len(x.ins) < 3 || n[0] < 2 || len(x.outs)%int(n[0]) != 0 {
		return refused("%s with %d tensors, %d inputs, %d numbers and integers %v", op, len(x.outs), len(x.ins), len(x.numbers), n)
	}
	each := len(x.outs) / int(n[0])
	x.outLists = x.outLists[:0]
	for k := range int(n[0]) {
		x.outLists = append(x.outLists, x.outs[k*each:][:each])
	}
	v := x.values
	step := kernel.Step{LR: v[0].Float, WeightDecay: v[1].Float, Momentum: v[2].Float, Dampening: v[3].Float,
		Beta1: v[4].Float, Beta2: v[5].Float, Eps: v[6].Float, LRDecay: v[7].Float,
		Nesterov: n[1] != 0, Maximize: n[2] != 0, First: n[3] != 0,
		FoundInf: x.ins[0], GradScale: x.ins[1], LRTensor: x.ins[2]}
	steps := x.ins[3:]
	if len(steps) == 0 {
		steps = nil
	}
	if len(steps) != 0 && len(steps) != each {
		return fmt.Errorf("%w%d numbers of steps for %d tensors", errKernelArgs, len(steps), each)
	}
	return c.enqueue(l, c.plan.Optimize(op, &step, x.outLists[0], x.outLists[1], x.outLists[2:], steps))
}
