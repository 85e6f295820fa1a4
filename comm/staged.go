package comm

import (
	"cmp"
	"context"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// result is a tensor on a device and the copy in pinned memory that has its elements when an operation is done.
type result struct{ to, from *tensor.Tensor }

// results are due behind operations on a device whose memory engines of the process can't touch.
type results []result

// reach replaces an operation's tensors by what the backend can touch, and notes that s uses them: by views of the
// memory, or else by copies in pinned memory, which are made when s gets there.
func (r *results) reach(o *call, s *device.Stream) error {
	o.originals = &originals{o.In, o.Out, o.Reduce.FactorTensor, o.Ins, o.Outs, o.work != nil, o.Ctx}
	if s.HostKernels() {
		return engineViews(o, s)
	}
	given, copies, ctx := o.originals, map[*tensor.Tensor]*tensor.Tensor{}, device.WithStream(context.Background(), s)
	err := o.Replace(func(t *tensor.Tensor) (*tensor.Tensor, error) {
		if t.OnHost() || copies[t] != nil {
			return cmp.Or(copies[t], t), nil
		}
		c, err := tensor.EmptyPinned(s.Device().Runtime(), t.DType(), t.Shape()...)
		if err == nil {
			copies[t], err = c, tensor.Copy(ctx, c, t) // results too: an operation need not write to all of them
		}
		return c, err
	})
	for _, t := range append([]*tensor.Tensor{given.out}, given.outs...) {
		if c := copies[t]; c != nil {
			*r = append(*r, result{t, c})
		}
	}
	return err
}

// enqueue gives the tensors on the device the results, when s gets there.
func (r results) enqueue(s *device.Stream) error {
	ctx := device.WithStream(context.Background(), s)
	for _, x := range r {
		if err := tensor.Copy(ctx, x.to, x.from); err != nil {
			return err
		}
	}
	return nil
}
