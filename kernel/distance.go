package kernel

import (
	"fmt"
	"math"

	"github.com/chorus-comms/chorus/kernel/text"
)

// DistanceFamily computes the distances between the rows of two matrices, and their gradients.
const DistanceFamily text.Family = 35

func init() { text.Register(DistanceFamily, "distance", distanceSource) }

// The forms of a distance, by the norm.
const (
	distanceP = iota // by the number p
	distance0        // how many elements differ
	distance1
	distance2
	distanceInf
)

func distanceForm(p float64) uint8 {
	switch {
	case p == 0:
		return distance0
	case p == 1:
		return distance1
	case p == 2:
		return distance2
	case math.IsInf(p, 1):
		return distanceInf
	}
	return distanceP
}

// Distance adds the distances by the p-norm between the rows of a and those of b. Their matrices are the last two
// dimensions: out[i, j] is the distance of row i of a and row j of b. The dimensions before those of a and b are
// broadcast to those of out. All have one type, a floating-point one, and p is from 0 to infinity.
func (p *Plan) Distance(out, a, b Operand, norm float64) error {
	return p.distance("cdist", norm, []*Operand{&out, &a, &b})
}

// DistanceBackward adds the gradient of a, out, given that of the distances, and the distances. The gradient of b is
// that with a and b exchanged, and grad and distances transposed.
func (p *Plan) DistanceBackward(out, grad, a, b, distances Operand, norm float64) error {
	if len(a.Sizes) != len(out.Sizes) || a.Count() != out.Count() {
		return fmt.Errorf("kernel: the gradient of cdist of %v to %v", a.Sizes, out.Sizes)
	}
	if len(distances.Sizes) != len(grad.Sizes) || distances.Count() != grad.Count() || distances.Type != out.Type {
		return fmt.Errorf("kernel: the gradient of cdist of %v with distances of %v", grad.Sizes, distances.Sizes)
	}
	return p.distance("cdist_backward", norm, []*Operand{&out, &a, &b, &grad, &distances})
}

// distance adds a run with a thread for each element of the first operand. The operands are out, a, b, and for a
// gradient grad and the distances. That of a row and column of out is by the row of a and the column or row of b.
func (p *Plan) distance(op string, norm float64, operands []*Operand) error {
	out := operands[0]
	rank := len(out.Sizes)
	if rank < 2 || rank > maxRank || norm < 0 || math.IsNaN(norm) {
		return fmt.Errorf("kernel: %s of %d dimensions by norm %v", op, rank, norm)
	}
	for _, o := range operands {
		if err := o.check("an operand"); err != nil {
			return err
		}
		if o.Value != nil || o.Type != out.Type || !o.Type.IsFloating() || len(o.Sizes) > rank || len(o.Sizes) < 2 {
			return fmt.Errorf("kernel: %s of %v of %v to %v of %v", op, o.Sizes, o.Type, out.Sizes, out.Type)
		}
	}
	strides, steps, loop, err := distanceSteps(op, operands)
	if err != nil {
		return err
	}
	q := &p.space
	if err := q.init(out.Sizes[:rank-2]); err != nil {
		return err
	}
	for _, o := range operands {
		matrix := *o
		matrix.Sizes, matrix.Strides = o.Sizes[:len(o.Sizes)-2], o.Strides[:len(o.Sizes)-2]
		if err := q.add(&matrix); err != nil {
			return err
		}
	}
	for d := q.dims - 1; d >= 0; d-- { // the last two come before the others
		q.move(d+2, d)
	}
	q.dims += 2
	for d := range 2 {
		q.sizes[d] = out.Sizes[rank-1-d]
		q.count *= q.sizes[d]
		for k := range operands {
			q.strides[k][d] = strides[k][d]
		}
	}
	if q.count == 0 {
		return nil
	}
	q.join()
	if q.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	s := text.Spec{Family: DistanceFamily, Op: op, Compute: text.Opmath(out.Type), Block: threads, Outs: 1,
		Ins: uint8(len(operands) - 1), Form: distanceForm(norm), Dims: uint8(q.dims), Wide: wide(q.count, loop)}
	for k := range operands {
		s.Types[k] = out.Type
		s.Wide = s.Wide || wide(operands[k].reach())
	}
	c := p.call(s, q.count)
	for _, o := range operands {
		c.Args.Pointer(o.Ptr)
	}
	c.Index(q.count)
	c.Index(loop)
	for k := 1; k < len(operands); k++ {
		c.Index(steps[k])
	}
	Float(norm).add(&c.Args, s.Compute)
	if s.Dims > 0 {
		q.layout(&c.Args, s.Wide)
	}
	return nil
}

// distanceSteps are strides of the last two dimensions of out in each operand, the inner one first, and steps along the
// loop. That is over the columns of a and b, or over the rows of b for a gradient.
func distanceSteps(op string, operands []*Operand) (strides [5][2]int, steps [5]int, loop int, err error) {
	out, backward := operands[0], len(operands) > 3
	last := func(o *Operand, k int) (n, step int) { // dimension k from the end
		d := len(o.Sizes) - 1 - k
		return o.Sizes[d], o.Strides[d]
	}
	n, _ := last(operands[1], 0)
	rows, _ := last(operands[2], 1)
	want := [5][2]int{{rows, 0}, {n, 0}, {n, rows}, {rows, 0}, {rows, 0}} // columns, rows
	want[0][1], _ = last(operands[1], 1)
	want[1][1], want[3][1], want[4][1] = want[0][1], want[0][1], want[0][1]
	if backward {
		want[0][0] = n
	}
	for k, o := range operands {
		columns, inner := last(o, 0)
		high, outer := last(o, 1)
		if columns != want[k][0] || high != want[k][1] {
			err = fmt.Errorf("kernel: %s of %v and %v to %v", op, operands[1].Sizes, operands[2].Sizes, out.Sizes)
			return
		}
		switch {
		case k == 0 || k == 1 && backward:
			strides[k] = [2]int{inner, outer}
		case k == 1, k > 2:
			strides[k], steps[k] = [2]int{0, outer}, inner
		case backward: // b: its columns are those of the gradient
			strides[k], steps[k] = [2]int{inner, 0}, outer
		default:
			strides[k], steps[k] = [2]int{outer, 0}, inner
		}
	}
	if backward {
		n = rows
	}
	return strides, steps, n, nil
}

func distanceSource(s text.Spec) (text.Source, error) {
	var w writer
	w.Begin(s)
	w.Defines(s, int(s.Outs+s.Ins))
	for k, name := range [...]string{distanceP: "NORM_P", "NORM_0", "NORM_1", "NORM_2", "NORM_INF"} {
		w.Define(name, k)
	}
	w.Define("NORM", s.Form)
	w.DefineIf(s.Op == "cdist_backward", "BACKWARD")
	return w.File("distance", s.Op)
}
