package nccl

import (
	"context"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A collective of a list whose tensors have one size, as all ranks see by the list, is the library's of one tensor.
// It's on the list's memory where the tensors lie one behind the other; else on memory to or from which they are
// copied. One call of the library is faster than a group of broadcasts, or of reductions.

// together is where tensors of one size lie, if that is one behind the other in one allocation; else 0.
func (r *rank) together(list []*tensor.Tensor, bytes int) uintptr {
	p := address(list[0])
	for i, t := range list {
		if address(t) != p+uintptr(i*bytes) {
			return 0
		}
	}
	if at, err := r.dev.Runtime().Driver().Attributes(device.Ptr(p)); err != nil ||
		uintptr(at.Base)+uintptr(at.Bytes) < p+uintptr(len(list)*bytes) {
		return 0 // the library maps and registers allocations
	}
	return p
}

// stage returns memory for an operation, which is given back behind it. Memory that a graph of others uses stays.
func (x *calls) stage(op *backend.Op, dt dtype.DType, n int) *tensor.Tensor {
	if x.err != nil {
		return nil
	}
	t, err := tensor.EmptyOn(device.WithStream(context.Background(), op.Stream), x.dev, dt, n)
	if err != nil {
		x.err = err
		return nil
	}
	if x.captured && op.Stream.Capturing() && !x.dev.Capturing() {
		x.kept = append(x.kept, t)
	} else {
		x.staged = append(x.staged, t)
	}
	return t
}

// copy enqueues a copy in front of the library's work, or behind what it has been given.
func (x *calls) copy(op *backend.Op, to, from uintptr, bytes int) {
	if x.err == nil {
		x.err = op.Stream.Copy(device.Ptr(to), device.Ptr(from), bytes)
	}
}

// gatherList is an all-gather of lists.
func (x *calls) gatherList(op *backend.Op) {
	if base.Uneven(op.Outs) {
		x.begin()
		for q, out := range op.Outs {
			in := address(out)
			if q == x.rank.rank {
				in = address(op.In)
			}
			x.broadcast(in, address(out), out.NBytes(), q)
		}
		x.end()
		return
	}
	bytes := op.Outs[0].NBytes()
	if bytes == 0 {
		return
	}
	if p := x.together(op.Outs, bytes); p != 0 {
		x.gather(address(op.In), p, bytes)
		return
	}
	all := x.stage(op, dtype.Uint8, bytes*len(op.Outs))
	x.gather(address(op.In), address(all), bytes)
	x.after = append(x.after, func() {
		for q, out := range op.Outs {
			x.copy(op, address(out), address(all)+uintptr(q*bytes), bytes)
		}
	})
}

// scatterList is a reduce-scatter of lists.
func (x *calls) scatterList(op *backend.Op, dt abi.DataType, per int, red abi.RedOp) {
	if base.Uneven(op.Ins) {
		x.begin()
		for q, in := range op.Ins {
			out := address(in)
			if q == x.rank.rank {
				out = address(op.Out)
			}
			x.reduce(address(in), out, uint64(in.NumEl()*per), dt, red, q)
		}
		x.end()
		return
	}
	bytes := op.Ins[0].NBytes()
	if bytes == 0 {
		return
	}
	from := x.together(op.Ins, bytes)
	if from == 0 {
		from = address(x.stage(op, dtype.Uint8, bytes*len(op.Ins)))
		for q, in := range op.Ins {
			x.copy(op, from+uintptr(q*bytes), address(in), bytes)
		}
	}
	x.scatter(from, address(op.Out), uint64(op.Out.NumEl()*per), dt, red)
}
