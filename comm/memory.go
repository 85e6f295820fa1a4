package comm

import (
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Empty returns a tensor, with undefined contents, in memory that peers on this
// host can map: the fastest that collectives can have. It's freed with the last
// tensor that refers to it.
func (c *Comm) Empty(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	t, err := tensor.EmptyShared(dt, shape...)
	if err != nil {
		return nil, c.invalid("empty", "%v", err)
	}
	return t, nil
}

// Zeros is Empty, filled with zeros.
func (c *Comm) Zeros(dt dtype.DType, shape ...int) (*tensor.Tensor, error) {
	t, err := tensor.ZerosShared(dt, shape...)
	if err != nil {
		return nil, c.invalid("zeros", "%v", err)
	}
	return t, nil
}
