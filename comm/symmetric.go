package comm

import (
	"context"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// RegisterSymmetric tells the backend's library that blocks of its memory lie alike on all ranks, which lets it use
// faster kernels for tensors in them: NCCL's symmetric memory. It's collective. Each block is a whole allocation of
// the library's, such as a segment of the allocator's. Every rank gives as many, of the same sizes, in any order.
// Operations use the same place of a block on all ranks. A library without that, or a machine, is an
// *[UnsupportedError]; blocks that differ are a *[MismatchError].
func (c *Comm) RegisterSymmetric(ctx context.Context, blocks ...*tensor.Tensor) error {
	return c.symmetric(ctx, record.RegisterSymmetric, backend.Symmetric.RegisterSymmetric, blocks)
}

// DeregisterSymmetric ends what RegisterSymmetric began for these blocks, after the operations that were issued before.
// It's collective.
func (c *Comm) DeregisterSymmetric(ctx context.Context, blocks ...*tensor.Tensor) error {
	return c.symmetric(ctx, record.DeregisterSymmetric, backend.Symmetric.DeregisterSymmetric, blocks)
}

func (c *Comm) symmetric(ctx context.Context, what record.Special,
	f func(backend.Symmetric, context.Context, []*tensor.Tensor, time.Duration) error, blocks []*tensor.Tensor) error {
	op := what.String()
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(ctx, op); err != nil {
		return c.refuse(op, err)
	}
	s, ok := c.b.(backend.Symmetric)
	if !ok {
		return &UnsupportedError{Where: c.at(op), Detail: fmt.Sprintf("backend %q has no symmetric memory", c.backend)}
	}
	for _, b := range blocks {
		bad := one("block", b, dtype.Invalid)
		if bad == "" {
			bad = c.here(b)
		}
		if bad != "" {
			return c.refuse(op, c.invalid(op, "%s", bad))
		}
	}
	if err := c.placement.Load().quiesce(ctx); err != nil {
		return c.refuse(op, err)
	}
	return c.exclusive(what, len(blocks), func() error { return f(s, ctx, blocks, c.Options().Timeout) })
}
