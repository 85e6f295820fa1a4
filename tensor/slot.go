package tensor

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
)

// Slot is room for one tensor over foreign memory that is described anew for each
// use, so that a call that passes addresses allocates nothing. The zero Slot is ready.
//
//	t, err := slot.Set(dtype.Float32, p, n)   // good until the next Set
type Slot struct {
	t       Tensor
	store   storage
	shape   [1]int
	strides [1]int
}

// Set makes the slot's tensor n elements at p, one dimension, as [FromPointer] does, and returns it. The tensor
// that Set returned before must not be in use any more.
func (s *Slot) Set(dt dtype.DType, p unsafe.Pointer, n int) (*Tensor, error) {
	switch {
	case !dt.Valid():
		return nil, fmt.Errorf("tensor: element type %v", dt)
	case n < 0:
		return nil, fmt.Errorf("tensor: shape [%d] has a negative dimension", n)
	case n > maxSpan/dt.Size():
		return nil, fmt.Errorf("tensor: shape [%d] of %v is larger than the address space", n, dt)
	case p == nil && n > 0:
		return nil, fmt.Errorf("tensor: nil pointer for shape [%d]", n)
	}
	if err := checkAligned(dt, p); err != nil {
		return nil, err
	}
	bytes := n * dt.Size()
	s.shape[0], s.strides[0] = n, 1
	s.store = storage{base: p, bytes: bytes}
	s.t = Tensor{ptr: p, numel: n, nbytes: bytes, dt: dt, contiguous: true, shape: s.shape[:], strides: s.strides[:],
		store: &s.store}
	if seg, off, ok := hostmem.Find(p, bytes); ok {
		s.t.seg, s.t.segOff = seg, off
	}
	return &s.t, nil
}
