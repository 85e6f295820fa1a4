package comm

import (
	"cmp"
	"context"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// staged are copies in pinned memory of an operation's tensors, on a device whose memory engines of the process can't
// touch. The zero value has none.
type staged struct {
	copies  []*tensor.Tensor
	results []result
}

// result is a tensor on the device, and the copy that has its elements when the operation is done.
type result struct{ to, from *tensor.Tensor }

// reach replaces an operation's tensors by what the backend can touch, and notes that s uses them: by views of the
// memory, or else by copies, which are made when s gets there.
func (x *staged) reach(o *call, s *device.Stream) error {
	o.originals = &originals{o.In, o.Out, o.Reduce.FactorTensor, o.Ins, o.Outs, o.work != nil, o.Ctx}
	if s.HostKernels() {
		return o.Replace(engineView(s))
	}
	given, copies, ctx := o.originals, map[*tensor.Tensor]*tensor.Tensor{}, device.WithStream(context.Background(), s)
	err := o.Replace(func(t *tensor.Tensor) (*tensor.Tensor, error) {
		if t.OnHost() || copies[t] != nil {
			return cmp.Or(copies[t], t), nil
		}
		c, err := tensor.EmptyPinned(s.Device().Runtime(), t.DType(), t.Shape()...)
		if err == nil {
			x.copies = append(x.copies, c)
			copies[t], err = c, tensor.Copy(ctx, c, t) // results too: an operation need not write to all of them
		}
		return c, err
	})
	for _, t := range append([]*tensor.Tensor{given.out}, given.outs...) {
		if c := copies[t]; c != nil {
			x.results = append(x.results, result{t, c})
		}
	}
	return err
}

// finish gives the tensors on the device the results, when s gets there. Only then the Work of the task is completed,
// and the pinned memory given back. A graph keeps that for its runs.
func (x *staged) finish(t *task, s *device.Stream) error {
	if len(x.copies) == 0 {
		return nil
	}
	ctx := device.WithStream(context.Background(), s)
	for _, r := range x.results {
		if err := tensor.Copy(ctx, r.to, r.from); err != nil {
			return err
		}
	}
	if t.capturing {
		return nil
	}
	copies, end := x.copies, t.handle
	end.staged = false
	return s.HostFunc(t.op, func() error {
		for _, c := range copies {
			c.Free()
		}
		end.end(nil)
		return nil
	})
}
