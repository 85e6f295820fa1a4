package comm

import (
	"context"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// Broadcast copies root's t to every rank's t.
//
// Shapes: the same dtype and number of elements on every rank.
func (c *Comm) Broadcast(ctx context.Context, t *tensor.Tensor, root int, opts ...Option) error {
	o := c.begin()
	o.Out, o.Root = t, root
	return c.collective(ctx, backend.Broadcast, o, opts)
}

// AllReduce combines the ranks' tensors element by element and leaves the result
// in every rank's t, or in the tensor given by Into.
//
// Shapes: the same dtype and number of elements on every rank.
func (c *Comm) AllReduce(ctx context.Context, t *tensor.Tensor, r Reduction, opts ...Option) error {
	o := c.begin()
	o.In, o.Out, o.Reduce = t, t, r
	return c.collective(ctx, backend.AllReduce, o, opts)
}

// Reduce is AllReduce whose result only root gets; the other ranks' t is left as it is.
func (c *Comm) Reduce(ctx context.Context, t *tensor.Tensor, root int, r Reduction, opts ...Option) error {
	o := c.begin()
	o.In, o.Root, o.Reduce = t, root, r
	if c.rank == root {
		o.Out = t
	}
	return c.collective(ctx, backend.Reduce, o, opts)
}

// Scan combines the tensors of the ranks up to this one, itself among them, element by element, and leaves the result
// in its t, or in the tensor given by Into. There are no averages of that.
//
// Shapes: the same dtype and number of elements on every rank.
func (c *Comm) Scan(ctx context.Context, t *tensor.Tensor, r Reduction, opts ...Option) error {
	o := c.begin()
	o.In, o.Out, o.Reduce = t, t, r
	return c.collective(ctx, backend.Scan, o, opts)
}

// AllGather gives every rank every rank's t: out[r] = t of rank r.
//
// Shapes: out has one tensor per rank, each with t's dtype and number of elements.
func (c *Comm) AllGather(ctx context.Context, out []*tensor.Tensor, t *tensor.Tensor, opts ...Option) error {
	o := c.begin()
	o.In, o.Outs = t, out
	return c.collective(ctx, backend.AllGather, o, opts)
}

// AllGatherSingle is AllGather into one tensor: block r of out = in of rank r.
//
// Shapes: out has world size times in's elements. In place if in is this rank's block of out.
func (c *Comm) AllGatherSingle(ctx context.Context, out, in *tensor.Tensor, opts ...Option) error {
	o := c.begin()
	o.In, o.Out = in, out
	return c.collective(ctx, backend.AllGatherSingle, o, opts)
}

// AllGatherV is AllGather with tensors of different sizes.
//
// Shapes: out[r] has the elements of rank r's t; all ranks pass the same sizes.
func (c *Comm) AllGatherV(ctx context.Context, out []*tensor.Tensor, t *tensor.Tensor, opts ...Option) error {
	o := c.begin()
	o.In, o.Outs = t, out
	return c.collective(ctx, backend.AllGatherV, o, opts)
}

// ReduceScatter combines the ranks' lists element by element and gives rank r the
// result of in[r].
//
// Shapes: in has one tensor per rank, each with out's dtype and number of elements.
func (c *Comm) ReduceScatter(ctx context.Context, out *tensor.Tensor, in []*tensor.Tensor, r Reduction,
	opts ...Option) error {
	o := c.begin()
	o.Ins, o.Out, o.Reduce = in, out, r
	return c.collective(ctx, backend.ReduceScatter, o, opts)
}

// ReduceScatterSingle is ReduceScatter of one tensor: rank r gets the result of block r.
//
// Shapes: in has world size times out's elements. In place if out is this rank's block of in.
func (c *Comm) ReduceScatterSingle(ctx context.Context, out, in *tensor.Tensor, r Reduction, opts ...Option) error {
	o := c.begin()
	o.In, o.Out, o.Reduce = in, out, r
	return c.collective(ctx, backend.ReduceScatterSingle, o, opts)
}

// ReduceScatterV is ReduceScatter with tensors of different sizes.
//
// Shapes: in[r] has the elements of rank r's out; all ranks pass the same sizes.
func (c *Comm) ReduceScatterV(ctx context.Context, out *tensor.Tensor, in []*tensor.Tensor, r Reduction,
	opts ...Option) error {
	o := c.begin()
	o.Ins, o.Out, o.Reduce = in, out, r
	return c.collective(ctx, backend.ReduceScatterV, o, opts)
}

// AllToAll sends in[s] to rank s and receives from rank r into out[r].
//
// Shapes: in[s] on rank r has the elements of out[r] on rank s.
func (c *Comm) AllToAll(ctx context.Context, out, in []*tensor.Tensor, opts ...Option) error {
	o := c.begin()
	o.Ins, o.Outs = in, out
	return c.collective(ctx, backend.AllToAll, o, opts)
}

// AllToAllSingle is AllToAll with equal blocks of one tensor.
//
// Shapes: in and out have the same number of elements, divisible by the world size.
func (c *Comm) AllToAllSingle(ctx context.Context, out, in *tensor.Tensor, opts ...Option) error {
	o := c.begin()
	o.In, o.Out = in, out
	return c.collective(ctx, backend.AllToAllSingle, o, opts)
}

// AllToAllVSingle is AllToAll with blocks of one tensor of different sizes. Splits
// count elements of the first dimension, as in PyTorch, one per rank; together they may
// be less than the whole. inSplits[s] on rank r equals outSplits[r] on rank s.
func (c *Comm) AllToAllVSingle(ctx context.Context, out, in *tensor.Tensor, outSplits, inSplits []int,
	opts ...Option) error {
	o := c.begin()
	o.In, o.Out, o.InSplits, o.OutSplits = in, out, inSplits, outSplits
	return c.collective(ctx, backend.AllToAllVSingle, o, opts)
}

// Barrier returns when every rank has called it.
func (c *Comm) Barrier(ctx context.Context, opts ...Option) error {
	return c.collective(ctx, backend.Barrier, c.begin(), opts)
}

// Scatter gives rank r root's in[r]. in is ignored on other ranks.
//
// Shapes: in has one tensor per rank, each with out's dtype and number of elements. If they differ in size, all ranks
// get a *[MismatchError], except from backends over point-to-point messages, gloo and nccl, which carry it out.
func (c *Comm) Scatter(ctx context.Context, out *tensor.Tensor, in []*tensor.Tensor, root int, opts ...Option) error {
	o := c.begin()
	o.Out, o.Root = out, root
	if c.rank == root {
		o.Ins = in
	}
	return c.collective(ctx, backend.Scatter, o, opts)
}

// Gather gives root every rank's t: out[r] = t of rank r. out is ignored on other ranks.
//
// Shapes: out has one tensor per rank, each with t's dtype and number of elements; as in Scatter if they differ in
// size.
func (c *Comm) Gather(ctx context.Context, out []*tensor.Tensor, t *tensor.Tensor, root int, opts ...Option) error {
	o := c.begin()
	o.In, o.Root = t, root
	if c.rank == root {
		o.Outs = out
	}
	return c.collective(ctx, backend.Gather, o, opts)
}

// GatherSingle is Gather into one tensor: block r of root's out = in of rank r.
//
// Shapes: out has world size times in's elements; it's ignored on other ranks.
func (c *Comm) GatherSingle(ctx context.Context, out, in *tensor.Tensor, root int, opts ...Option) error {
	o := c.begin()
	o.In, o.Root = in, root
	if c.rank == root {
		o.Out = out
	}
	return c.collective(ctx, backend.GatherSingle, o, opts)
}
