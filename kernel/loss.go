package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// LossFamily picks the logarithm of the probability of each target's class, and is that one's gradient.
const LossFamily text.Family = 33

func init() { text.Register(LossFamily, "loss", lossSource) }

// Averaging says what becomes of the losses of single elements, with PyTorch's numbers.
type Averaging uint8

const (
	Separate Averaging = iota // nothing
	Mean                      // they are added, and divided by how many they are, or by their weights
	Sum                       // they are added
)

// Loss adds an operation on single elements, such as mse_loss, and the mean or the sum of what it gives. A mean or sum
// has as many dimensions as the inputs, which are broadcast to the first one's sizes, each of one element. It needs
// scratch memory of the first input's size.
func (p *Plan) Loss(op string, out Operand, averaging Averaging, ins []Operand, numbers ...*Number) error {
	compute := text.Opmath(out.Type)
	if averaging == Separate {
		return p.Elementwise(op, compute, []Operand{out}, ins, numbers...)
	}
	if averaging > Sum || len(ins) == 0 {
		return fmt.Errorf("kernel: %s of %d inputs with averaging %d", op, len(ins), averaging)
	}
	each, err := p.temporary(compute, ins[0].Sizes...)
	if err != nil {
		return err
	}
	if err := p.Elementwise(op, compute, []Operand{each}, ins, numbers...); err != nil {
		return err
	}
	return p.Reduce([...]string{Mean: "mean", Sum: "sum"}[averaging], compute, []Operand{out}, each, nil)
}

// NLL is a negative log-likelihood loss.
type NLL struct {
	Class     int       // the dimension of classes
	Weight    Operand   // one element a class, which multiplies its targets' losses; the zero Operand: 1
	Ignore    int64     // a target without a loss, which no class must be
	Smoothing float64   // the part of the loss that is the mean of all classes' ones
	Averaging Averaging // a mean is divided by the sum of the targets' weights
	Bad       device.Ptr
}

// NLL adds the loss of log-probabilities in, given each target's class: int64, int32 or uint8, with the sizes of in
// without the dimension of classes. The loss has the target's sizes, or is one element. total is that sum of weights,
// one element, and the zero Operand for separate losses. A target that's neither a class nor ignored has loss 0, and
// sets the word at l.Bad to 1 unless that's null. Sums need scratch memory of the target's size.
func (p *Plan) NLL(out, total, in, target Operand, l *NLL) error {
	compute := text.Opmath(in.Type)
	if l.Averaging == Separate {
		return p.nll("nll_loss", out, Operand{}, in, target, out, l)
	}
	if l.Averaging > Sum || total.Type == dtype.Invalid || total.Count() != 1 || out.Count() != 1 {
		return fmt.Errorf("kernel: nll_loss with averaging %d to %v, and a total of %v", l.Averaging, out.Sizes, total.Sizes)
	}
	var each, sums [2]Operand
	ones := make([]int, len(target.Sizes))
	for k := range ones {
		ones[k] = 1
	}
	for k := range each {
		var err error
		if each[k], err = p.temporary(compute, target.Sizes...); err != nil {
			return err
		}
		if sums[k], err = p.temporary(compute, ones...); err != nil {
			return err
		}
	}
	if err := p.nll("nll_loss", each[0], each[1], in, target, out, l); err != nil {
		return err
	}
	for k := range each {
		if err := p.Reduce("sum", compute, sums[k:k+1], each[k], nil); err != nil {
			return err
		}
	}
	scalar := func(o Operand) Operand { return viewed(o) }
	if err := p.Copy(scalar(total), scalar(sums[1])); err != nil {
		return err
	}
	if l.Averaging == Sum {
		return p.Copy(scalar(out), scalar(sums[0]))
	}
	return p.Elementwise("div", compute, []Operand{scalar(out)}, []Operand{scalar(sums[0]), scalar(sums[1])})
}

// NLLBackward adds the gradient of the log-probabilities, given that of the loss. total is what [Plan.NLL] has written,
// which a mean needs.
func (p *Plan) NLLBackward(out, grad, target, total Operand, l *NLL) error {
	if l.Averaging == Mean && (total.Type != out.Type || total.Count() != 1) {
		return fmt.Errorf("kernel: the gradient of nll_loss with a total of %v of %v", total.Sizes, total.Type)
	}
	if l.Averaging != Mean {
		total = Operand{}
	}
	return p.nll("nll_loss_backward", out, total, grad, target, grad, l)
}

// nll adds the loss x0 and weight x1 of each target, or the gradient x0 given that of the loss, in, and the sum of
// weights x1. Of a mean or sum whose gradient it is, in has one element.
func (p *Plan) nll(op string, x0, x1, in, target, loss Operand, l *NLL) error {
	backward := op == "nll_loss_backward"
	classes, small := in, x0 // of all sizes, and of the target's
	if backward {
		classes, small = x0, in
	}
	compute := text.Opmath(classes.Type)
	weighted := l.Weight.Type != dtype.Invalid
	rank := len(classes.Sizes)
	if err := l.check(op, &classes, &target, loss.Type); err != nil {
		return err
	}
	one := backward && l.Averaging != Separate // gradient for all
	if one && small.Count() != 1 || !one && len(small.Sizes) != rank-1 {
		return fmt.Errorf("kernel: %s of losses of sizes %v", op, small.Sizes)
	}
	operands := [...]*Operand{&classes, &target, &small}
	for _, o := range operands {
		if err := o.check("an operand"); err != nil {
			return err
		}
		if o.Value != nil {
			return fmt.Errorf("kernel: %s of a number", op)
		}
	}
	q := &p.space
	*q = space{count: 1, ops: len(operands)}
	for d := rank - 1; d >= 0; d-- {
		if d == l.Class {
			continue
		}
		at, n := d, classes.Sizes[d]
		if d > l.Class {
			at--
		}
		if target.Sizes[at] != n || !one && small.Sizes[at] != n {
			return fmt.Errorf("kernel: %s of %v with targets of %v", op, classes.Sizes, target.Sizes)
		}
		step := 0
		if !one {
			step = small.Strides[at]
		}
		q.dim(n, classes.Strides[d], target.Strides[at], step)
	}
	n, step := classes.Sizes[l.Class], classes.Strides[l.Class]
	if q.count == 0 || backward && n == 0 {
		return nil
	}
	q.squeeze() // the weights of targets lie in their order
	if q.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	s := text.Spec{Family: LossFamily, Op: op, Compute: compute, Block: threads, Outs: 1, Ins: 2, Dims: uint8(q.dims),
		Wide: wide(q.count*max(n, 1), classes.reach(), target.reach(), small.reach(), l.Weight.reach())}
	s.Types = [text.MaxOperands]dtype.DType{small.Type, target.Type, classes.Type}
	runs := q.count
	if backward {
		runs *= n
	}
	c := p.call(s, runs)
	for _, at := range [...]device.Ptr{classes.Ptr, target.Ptr, small.Ptr, l.Weight.Ptr, x1.Ptr, l.Bad} {
		c.Args.Pointer(at)
	}
	c.Index(q.count)
	c.Index(n)
	c.Index(step)
	if weighted {
		c.Index(l.Weight.Strides[0])
	} else {
		c.Index(0)
	}
	c.Args.Int64(l.Ignore)
	Float(l.Smoothing).add(&c.Args, compute)
	if s.Dims > 0 {
		q.layout(&c.Args, s.Wide)
	}
	return nil
}

// check says what's wrong with a loss of classes, whose type is that of the loss, and targets.
func (l *NLL) check(op string, classes, target *Operand, loss dtype.DType) error {
	weighted := l.Weight.Type != dtype.Invalid
	rank := len(classes.Sizes)
	switch {
	case !text.Opmath(classes.Type).IsFloating() || loss != classes.Type:
		return fmt.Errorf("kernel: %s of %v to %v", op, classes.Type, loss)
	case l.Class < 0 || l.Class >= rank || len(target.Sizes) != rank-1 || rank > maxRank:
		return fmt.Errorf("kernel: %s of %v in dimension %d, with targets of %v", op, classes.Sizes, l.Class, target.Sizes)
	case target.Type != dtype.Int64 && target.Type != dtype.Int32 && target.Type != dtype.Uint8:
		return fmt.Errorf("kernel: %s with targets of %v", op, target.Type)
	case weighted && (l.Weight.Type != classes.Type || len(l.Weight.Sizes) != 1 ||
		l.Weight.Sizes[0] != classes.Sizes[l.Class]):
		return fmt.Errorf("kernel: %s with weights of %v of %v", op, l.Weight.Sizes, l.Weight.Type)
	}
	return nil
}

func lossSource(s text.Spec) (text.Source, error) {
	var w writer
	w.Begin(s)
	w.Defines(s, 3)
	w.Define("LOSS(x)", text.Converted(s.Compute, s.Types[0], "x"))
	w.Define("CLASS(x)", text.Narrowed(s.Types[2], s.Compute, "x"))
	w.DefineIf(s.Op == "nll_loss_backward", "BACKWARD")
	return w.File("loss", s.Op)
}
