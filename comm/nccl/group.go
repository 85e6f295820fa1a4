package nccl

import (
	"cmp"
	"slices"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// use is memory that an operation of a group uses.
type use struct {
	from, to uintptr
	op       int
	writes   bool
}

// entangled finds two collectives of a group of which one uses memory that the other writes. The library carries out
// the operations of a group at the same time. j is 0 if there are none.
func entangled(ops []*backend.Op) (i, j int) {
	if len(ops) < 2 || ops[0].Kind.PointToPoint() {
		return 0, 0
	}
	var all []use
	for i, op := range ops {
		add := func(t *tensor.Tensor, writes bool) {
			if t != nil && t.NBytes() > 0 {
				all = append(all, use{address(t), address(t) + uintptr(t.NBytes()), i, writes})
			}
		}
		add(op.In, false)
		add(op.Out, true)
		for _, t := range op.Ins {
			add(t, false)
		}
		for _, t := range op.Outs {
			add(t, true)
		}
	}
	slices.SortFunc(all, func(a, b use) int { return cmp.Compare(a.from, b.from) })
	var read, written reach
	for _, u := range all {
		other, found := written.beyond(u)
		if !found && u.writes {
			other, found = read.beyond(u)
		}
		if found {
			return min(other, u.op), max(other, u.op)
		}
		if u.writes {
			written.add(u)
		} else {
			read.add(u)
		}
	}
	return 0, 0
}

// reach is how far memory goes that operations use, as it was found in the order of its addresses: the farthest use,
// and the farthest one of another operation.
type reach [2]use

func (r *reach) add(u use) {
	switch {
	case u.op == r[0].op:
		if u.to > r[0].to {
			r[0] = u
		}
	case u.to > r[0].to:
		r[0], r[1] = u, r[0]
	case u.to > r[1].to:
		r[1] = u
	}
}

// beyond returns another operation than u's that uses memory beyond where u begins, if there is one.
func (r *reach) beyond(u use) (op int, found bool) {
	for _, v := range r {
		if v.op != u.op && v.to > u.from {
			return v.op, true
		}
	}
	return 0, false
}
