package kernel

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kernel/text"
)

// lines are where the elements of each operand lie along one dimension.
type lines struct {
	dim   int
	n     [text.MaxOperands]int // elements
	steps [text.MaxOperands]int // from one to the next
	wide  bool                  // a place needs 64 bits
}

// along fills the plan's space with the dimensions other than l.dim, which all operands have alike, and l with the
// places along that one. An operand without a type isn't there. A tensor of no dimensions is a line of one element.
func (p *Plan) along(op string, l *lines, operands []*Operand) error {
	q, sizes := &p.space, operands[len(operands)-1].Sizes
	*q = space{count: 1, ops: len(operands)}
	if l.dim < 0 || l.dim >= max(len(sizes), 1) || len(sizes) > maxRank {
		return fmt.Errorf("kernel: %s along dimension %d of %d", op, l.dim, len(sizes))
	}
	for k, o := range operands {
		l.n[k], l.steps[k] = 1, 0
		if o.Type == dtype.Invalid {
			continue
		}
		if err := o.check("an operand"); err != nil {
			return err
		}
		if o.Value != nil || len(o.Sizes) != len(sizes) {
			return fmt.Errorf("kernel: %s of operands of sizes %v and %v", op, sizes, o.Sizes)
		}
		for d, n := range o.Sizes {
			switch {
			case d == l.dim:
				l.n[k], l.steps[k] = n, o.Strides[d]
			case n != sizes[d]:
				return fmt.Errorf("kernel: %s of operands of sizes %v and %v", op, sizes, o.Sizes)
			}
		}
	}
	for d := len(sizes) - 1; d >= 0; d-- {
		if d == l.dim {
			continue
		}
		var strides [text.MaxOperands]int
		for k, o := range operands {
			if o.Type != dtype.Invalid {
				strides[k] = o.Strides[d]
			}
		}
		q.dim(sizes[d], strides[:len(operands)]...)
	}
	q.join()
	if q.dims > text.MaxDims {
		return fmt.Errorf("kernel: %s: more than %d dimensions that don't join", op, text.MaxDims)
	}
	for k, o := range operands {
		l.wide = l.wide || wide(l.n[k]*q.count, o.reach())
	}
	return nil
}
