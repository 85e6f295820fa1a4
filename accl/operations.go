package accl

import (
	"context"
	"fmt"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Copy copies elements within the engine's memory, or from and to its kernel.
func (d *Driver) Copy(ctx context.Context, src, dst Operand, count int, opts ...Option) error {
	return d.begin(ctx, abi.Copy, count, 0, []side{op0(src, 1), res(dst, 1)}, opts)
}

// Combine combines elements of two operands.
func (d *Driver) Combine(ctx context.Context, f abi.ReduceFunction, a, b, result Operand, count int,
	opts ...Option) error {
	return d.begin(ctx, abi.Combine, count, 0, []side{op0(a, 1), op1(b), res(result, 1)}, function(f, opts))
}

func function(f abi.ReduceFunction, opts []Option) []Option {
	return append(opts[:len(opts):len(opts)], func(c *call) { c.words.Function = uint32(f) })
}

// Send sends elements to a rank, and Recv receives them.
func (d *Driver) Send(ctx context.Context, src Operand, count, dst int, opts ...Option) error {
	return d.begin(ctx, abi.Send, count, dst, []side{op0(src, 1)}, opts)
}

// Recv receives elements of a rank. To a stream, they go to the one whose id is the tag.
func (d *Driver) Recv(ctx context.Context, dst Operand, count, src int, opts ...Option) error {
	return d.begin(ctx, abi.Recv, count, src, []side{res(dst, 1)}, opts)
}

// StreamPut sends elements into a stream of a rank's kernel, where nothing needs to receive them.
func (d *Driver) StreamPut(ctx context.Context, src Operand, count, dst int, stream uint32, opts ...Option) error {
	if stream > abi.MaxStream {
		return fmt.Errorf("accl: stream %d; the last one is %d", stream, abi.MaxStream)
	}
	return d.begin(ctx, abi.Send, count, dst, []side{op0(src, 1)}, append(opts[:len(opts):len(opts)], func(c *call) {
		c.words.Tag = stream
		c.words.Stream |= abi.ResStream
	}))
}

// Bcast gives the root's elements to all, in place.
func (d *Driver) Bcast(ctx context.Context, buf Operand, count, root int, opts ...Option) error {
	s := op0(buf, 1)
	me := d.of(opts).rank
	s.in, s.out = me == root, me != root
	if _, stream := buf.(KernelStream); stream && me != root {
		s.stream = abi.ResStream
	}
	s.small |= abi.ResCompressed
	return d.begin(ctx, abi.Bcast, count, root, []side{s}, opts)
}

// of returns the communicator of a call.
func (d *Driver) of(opts []Option) *Communicator {
	c := call{comm: d.world}
	for _, o := range opts {
		o(&c)
	}
	return c.comm
}

// atRoot is how many blocks an operand of the root alone has.
func (c *Communicator) atRoot(root, blocks int) int {
	if c.rank == root {
		return blocks
	}
	return 0
}

// Scatter gives each rank its block of count elements of the root's.
func (d *Driver) Scatter(ctx context.Context, send, recv Operand, count, root int, opts ...Option) error {
	c := d.of(opts)
	return d.begin(ctx, abi.Scatter, count, root, []side{op0(send, c.atRoot(root, c.size)), res(recv, 1)}, opts)
}

// Gather collects count elements of each rank at the root.
func (d *Driver) Gather(ctx context.Context, send, recv Operand, count, root int, opts ...Option) error {
	c := d.of(opts)
	return d.begin(ctx, abi.Gather, count, root, []side{op0(send, 1), res(recv, c.atRoot(root, c.size))}, opts)
}

// Reduce combines the elements of all ranks at the root.
func (d *Driver) Reduce(ctx context.Context, f abi.ReduceFunction, send, recv Operand, count, root int,
	opts ...Option) error {
	c := d.of(opts)
	return d.begin(ctx, abi.Reduce, count, root, []side{op0(send, 1), res(recv, c.atRoot(root, 1))}, function(f, opts))
}

// Allgather collects count elements of each rank at all ranks.
func (d *Driver) Allgather(ctx context.Context, send, recv Operand, count int, opts ...Option) error {
	return d.begin(ctx, abi.Allgather, count, 0, []side{op0(send, 1), res(recv, d.of(opts).size)}, opts)
}

// Allreduce combines the elements of all ranks at all ranks.
func (d *Driver) Allreduce(ctx context.Context, f abi.ReduceFunction, send, recv Operand, count int,
	opts ...Option) error {
	return d.begin(ctx, abi.Allreduce, count, 0, []side{op0(send, 1), res(recv, 1)}, function(f, opts))
}

// ReduceScatter combines the blocks of all ranks, of count elements each: each rank gets the one of its number.
func (d *Driver) ReduceScatter(ctx context.Context, f abi.ReduceFunction, send, recv Operand, count int,
	opts ...Option) error {
	return d.begin(ctx, abi.ReduceScatter, count, 0, []side{op0(send, d.of(opts).size), res(recv, 1)}, function(f, opts))
}

// Alltoall gives block i, of count elements, of each rank to rank i.
func (d *Driver) Alltoall(ctx context.Context, send, recv Operand, count int, opts ...Option) error {
	n := d.of(opts).size
	return d.begin(ctx, abi.Alltoall, count, 0, []side{op0(send, n), res(recv, n)}, opts)
}

// Barrier waits for all ranks.
func (d *Driver) Barrier(ctx context.Context, opts ...Option) error {
	return d.begin(ctx, abi.Barrier, 0, 0, nil, opts)
}
