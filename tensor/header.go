package tensor

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
)

// Header describes one tensor over foreign memory, anew for each use, so that a call that passes addresses
// allocates nothing. The zero Header is ready.
//
//	t, err := header.Set(dtype.Float32, p, n)   // good until the next Set
type Header struct {
	t       Tensor
	store   storage
	place   place
	shape   [1]int
	strides [1]int
}

// Set makes the header's tensor n elements at p, one dimension, as [FromPointer] does, and returns it. The tensor
// that Set returned before must not be in use any more.
func (h *Header) Set(dt dtype.DType, p unsafe.Pointer, n int) (*Tensor, error) {
	t, err := h.set(dt, p, n)
	if err == nil {
		if seg, off, ok := hostmem.Find(p, t.nbytes); ok {
			t.seg, t.segOff = seg, off
		}
	}
	return t, err
}

func (h *Header) set(dt dtype.DType, p unsafe.Pointer, n int) (*Tensor, error) {
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
	h.shape[0], h.strides[0] = n, 1
	h.store = storage{base: p, bytes: bytes}
	h.t = Tensor{ptr: p, numel: n, nbytes: bytes, dt: dt, contiguous: true, shape: h.shape[:], strides: h.strides[:],
		store: &h.store}
	return &h.t, nil
}

// SetOn is Set for device memory that the caller has allocated, and frees, as [FromDevice] has it.
func (h *Header) SetOn(d *device.Device, dt dtype.DType, p device.Ptr, n int) (*Tensor, error) {
	t, err := h.set(dt, pointer(p), n)
	if err == nil {
		err = onDevice(d, p, t.nbytes)
	}
	if err != nil {
		return nil, err
	}
	if !d.Properties().HostAccess {
		h.place = place{rt: d.Runtime(), dev: d}
		h.store.place = &h.place
	}
	return t, nil
}

// SetView makes the header's tensor the elements of a contiguous tensor, in one dimension, by addresses that engines of
// this process can follow, as [Tensor.EngineView] does. It's good while t is.
func (h *Header) SetView(t *Tensor) (*Tensor, error) {
	p := t.ptr
	if !t.OnHost() && t.nbytes > 0 {
		k, err := engines(t.On())
		if err != nil {
			return nil, err
		}
		if p, err = k.View(t.devicePtr(), t.nbytes); err != nil {
			return nil, err
		}
	}
	return h.set(t.dt, p, t.numel)
}
