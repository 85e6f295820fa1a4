package comm

import (
	"context"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Empty returns a tensor, with undefined contents, in memory that peers on this
// host can map: the fastest that collectives can have. It's freed with the last
// tensor that refers to it.
//
// In the communicator of a device it's memory of that. Any stream may use it at once. What isn't told of its users by
// Copy, Fill and this package, as kernels are, says so with tensor.UsedBy, before the last tensor is dropped or freed.
func (c *Comm) Empty(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return c.made("empty", func() (*tensor.Tensor, error) {
		if c.dev != nil {
			return tensor.EmptyOn(c.dev.atHome(), c.dev.dev, dt, shape...)
		}
		return tensor.EmptyShared(dt, shape...)
	})
}

// Zeros is Empty, filled with zeros.
func (c *Comm) Zeros(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	return c.made("zeros", func() (*tensor.Tensor, error) {
		if c.dev == nil {
			return tensor.ZerosShared(dt, shape...)
		}
		ctx := c.dev.atHome()
		t, err := tensor.ZerosOn(ctx, c.dev.dev, dt, shape...)
		if err == nil {
			err = c.dev.home.Synchronize(ctx)
		}
		return t, err
	})
}

func (c *Comm) made(op string, f func() (*tensor.Tensor, error)) (*tensor.Tensor, error) {
	t, err := f()
	if err != nil {
		return nil, &InvalidArgumentError{Where: c.at(op), Detail: err.Error(), Err: err}
	}
	return t, nil
}

// atHome is a context with the stream that Empty allocates for. Since no other work is ever enqueued on it, memory comes back
// only when all streams that are recorded as its users are done with it.
func (s *streams) atHome() context.Context {
	return device.WithStream(context.Background(), s.home)
}
