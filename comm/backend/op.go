package backend

import (
	"context"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// AnySource, as the Peer of a Recv, accepts a message from every rank.
const AnySource = -1

// Op is one operation of one rank. The communicator owns it; a backend may use
// it until the operation is done.
//
// The fields that most operations use come first, in two cache lines.
type Op struct {
	Kind    Kind
	In      *tensor.Tensor
	Out     *tensor.Tensor
	Root    int
	Reduce  Reduction
	Timeout time.Duration // counts from the operation's start; never 0

	Ctx       context.Context // never nil
	Seq       uint64          // the collective's sequence number; set by the backend
	Site      uint16          // where a program in another language calls it, as observe.Site numbers places; 0: in Go
	Algorithm string          // what carried it out, for recorders and benchmarks; set by the backend

	// Stream is where an operation on a device goes. The caller of comm.Submit may leave it nil, for the current one;
	// for a backend it's where Enqueue puts the operation.
	Stream *device.Stream
	// Over: a synchronous operation on a device was done when comm.Submit returned, and not enqueued.
	Over bool

	Hints map[string]string // per operation, on top of the communicator's; may be nil

	Ins, Outs           []*tensor.Tensor
	InSplits, OutSplits []int

	Peer int
	Tag  int
	From int // a Recv's sender; set by the backend

	// Running reports whether a run of the graph that has captured the operation is in it now; nil if no graph
	// has.
	Running func() bool

	// Pieces, if it isn't nil, brings In, and takes Out away, while a backend that is [Piecewise] is at work.
	Pieces Pieces

	// Backend's own, kept between Submit and Wait.
	State any
}

// First returns a tensor of the operation that tells its dtype, or nil.
func (o *Op) First() *tensor.Tensor {
	switch {
	case o.In != nil:
		return o.In
	case o.Out != nil:
		return o.Out
	case len(o.Ins) > 0:
		return o.Ins[0]
	case len(o.Outs) > 0:
		return o.Outs[0]
	}
	return nil
}

// Replace replaces each tensor of the operation, a factor too, by the result of f, and makes new lists of them. The
// first error ends it.
func (o *Op) Replace(f func(t *tensor.Tensor) (*tensor.Tensor, error)) (err error) {
	one := func(t *tensor.Tensor) *tensor.Tensor {
		if t != nil && err == nil {
			t, err = f(t)
		}
		return t
	}
	same := o.In == o.Out
	if o.In = one(o.In); same {
		o.Out = o.In
	} else {
		o.Out = one(o.Out)
	}
	for _, list := range []*[]*tensor.Tensor{&o.Ins, &o.Outs} {
		*list = slices.Clone(*list)
		for i, t := range *list {
			(*list)[i] = one(t)
		}
	}
	o.Reduce.FactorTensor = one(o.Reduce.FactorTensor)
	return err
}
