package chaos

import (
	"fmt"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A trial is one collective of one rank: the operation, and what must have come of it.
type trial struct {
	s        *step
	me, n    int
	f        flow
	op       comm.Op
	work     comm.Work
	in, out  []*tensor.Tensor // as blocks, or one for all of them
	separate bool             // the output is not the input's memory
}

// newTrial lays out a collective of rank me of c.
func newTrial(c *comm.Comm, s *step) (*trial, error) {
	t := &trial{s: s, me: c.Rank(), n: c.Size(), f: s.flow(c.Rank(), c.Size()), separate: true}
	var err error
	tensors := func(sizes []int, list bool) []*tensor.Tensor {
		if !list {
			sum := 0
			for _, n := range sizes {
				sum += n
			}
			sizes = []int{sum}
		}
		var all []*tensor.Tensor
		for _, n := range sizes {
			var x *tensor.Tensor
			if err == nil {
				x, err = allocate(c, s.DType, n, s.Shared)
			}
			all = append(all, x)
		}
		return all
	}
	op := &t.op
	op.Kind, op.Root, op.Reduce = s.Kind, s.Root, s.Reduce
	if s.Algo != "" {
		op.Hints = map[string]string{"algorithm": s.Algo}
	}
	row := s.Kind.Operation()
	listIn, listOut := row.In == backend.List, row.Out == backend.List
	if t.f.ins != nil {
		if t.in = tensors(t.f.ins, listIn); listIn {
			op.Ins = t.in
		} else {
			op.In = t.in[0]
		}
	}
	if t.f.outs != nil {
		if inPlace := !s.Apart && row.Into() && row.Reduces; inPlace {
			t.out, t.separate = t.in, false
		} else {
			t.out = tensors(t.f.outs, listOut)
		}
		if listOut {
			op.Outs = t.out
		} else {
			op.Out = t.out[0]
		}
	}
	if row.Splits() {
		op.InSplits, op.OutSplits = t.f.ins, t.f.outs
	}
	if err != nil {
		t.free()
		return nil, err
	}
	t.fill()
	return t, nil
}

// allocate makes a tensor of n elements.
func allocate(c *comm.Comm, dt dtype.DType, n int, shared bool) (*tensor.Tensor, error) {
	if shared {
		return c.Empty(dt, n)
	}
	return tensor.Empty(dt, n)
}

// fill writes the input, and what the output must not keep.
func (t *trial) fill() {
	for _, x := range t.out {
		b := raw(x)
		for i := range b {
			b[i] = untouched
		}
	}
	at := 0
	for _, x := range t.in {
		first := at
		fill(raw(x), t.s.DType, func(i int) int { return source(t.s, t.n, t.me, first+i) })
		at += x.NumEl()
	}
	if t.s.Kind == backend.Broadcast && t.me == t.s.Root {
		fill(raw(t.out[0]), t.s.DType, func(i int) int { return source(t.s, t.n, t.me, i) })
	}
}

// wrong describes what is wrong with the results; "" if nothing is.
func (t *trial) wrong() string {
	size := t.s.DType.Size()
	listOut := t.s.Kind.Operation().Out == backend.List
	at := 0
	for b, n := range t.f.outs {
		var got []byte
		if listOut {
			got = raw(t.out[b])
		} else {
			got = raw(t.out[0])[at*size : (at+n)*size]
		}
		at += n
		if bad := differs(got, t.s.DType, func(i int) int { return t.f.want(b, i) }); bad != "" {
			return fmt.Sprintf("block %d: %s", b, bad)
		}
	}
	if !t.separate {
		return ""
	}
	at = 0
	for k, x := range t.in {
		first := at
		if bad := differs(raw(x), t.s.DType, func(i int) int { return source(t.s, t.n, t.me, first+i) }); bad != "" {
			return fmt.Sprintf("input %d was changed: %s", k, bad)
		}
		at += x.NumEl()
	}
	return ""
}

// free gives the memory back.
func (t *trial) free() {
	for _, x := range t.in {
		if x != nil {
			x.Free()
		}
	}
	for _, x := range t.out {
		if x != nil && t.separate {
			x.Free()
		}
	}
}

// mistake changes an operation into one that the others don't call.
func (t *trial) mistake(kind int) {
	op := &t.op
	count := 5
	if t.s.Count == count { // the others may call the very same
		count++
	}
	other := tensor.Must(tensor.Zeros(dtype.Int32, count))
	switch {
	case kind == 0 && op.Kind != backend.Barrier:
		*op = comm.Op{Kind: backend.Barrier}
	case kind == 1 && op.Kind != backend.AllReduce:
		*op = comm.Op{Kind: backend.AllReduce, In: other, Out: other, Reduce: comm.Sum}
	case kind == 2 && op.Kind == backend.AllReduce:
		op.Reduce = comm.BXor
		op.In, op.Out = other, other
	default:
		*op = comm.Op{Kind: backend.Broadcast, Out: other, Root: (t.s.Root + 1) % t.n}
	}
	t.in, t.out, t.f = nil, nil, flow{}
}
