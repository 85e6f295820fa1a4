package tensor

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/kern"
)

// CopyFrom writes the elements of src into t, converted as [kern.Convert] describes. Shapes must be equal
// ([Tensor.Expand] repeats where they are not). The two may overlap: src is read as it was before.
func (t *Tensor) CopyFrom(src *Tensor) error {
	if err := t.checkCopy(src); err != nil {
		return err
	}
	if err := errors.Join(t.hostAccess("copy into"), src.hostAccess("copy from")); err != nil {
		return err
	}
	if t.numel == 0 {
		return nil
	}
	if t.Overlaps(src) {
		if t.ptr == src.ptr && t.dt == src.dt && slices.Equal(t.strides, src.strides) {
			return nil
		}
		c, err := src.Clone()
		if err != nil {
			return err
		}
		src = c
	}
	defer keep(t, src)
	if t.contiguous && src.contiguous {
		kern.Convert(t.dt, t.ptr, src.dt, src.ptr, t.numel)
		return nil
	}
	copyRuns(t, src)
	return nil
}

// checkCopy refuses shapes that differ, and a t that can't be written.
func (t *Tensor) checkCopy(src *Tensor) error {
	if !slices.Equal(t.shape, src.shape) {
		return fmt.Errorf("tensor: copy from shape %v into %v", src.shape, t.shape)
	}
	if t.HasInternalOverlap() {
		return fmt.Errorf("tensor: elements of shape %v with strides %v overlap and can't be written", t.shape, t.strides)
	}
	return nil
}

// copyRuns is CopyFrom for any strides, after all checks.
func copyRuns(t, src *Tensor) {
	p := newPair(t, src)
	size, srcSize := t.dt.Size(), src.dt.Size()
	switch {
	case t.dt == src.dt:
		p.each(func(dst, from unsafe.Pointer) bool {
			move(dst, p.aRun, from, p.bRun, p.n, size)
			return true
		})
	case p.aRun == size && p.bRun == srcSize:
		p.each(func(dst, from unsafe.Pointer) bool {
			kern.Convert(t.dt, dst, src.dt, from, p.n)
			return true
		})
	default: // pack, convert, spread
		tmp := scratches.Get().(*scratch)
		defer scratches.Put(tmp)
		packed, done := unsafe.Pointer(&tmp.a), unsafe.Pointer(&tmp.b)
		p.each(func(dst, from unsafe.Pointer) bool {
			for i := 0; i < p.n; i += pieceLen {
				n := min(p.n-i, pieceLen)
				move(packed, srcSize, unsafe.Add(from, i*p.bRun), p.bRun, n, srcSize)
				kern.Convert(t.dt, done, src.dt, packed, n)
				move(unsafe.Add(dst, i*p.aRun), p.aRun, done, size, n, size)
			}
			return true
		})
	}
}

// Clone is a contiguous copy in Go memory.
func (t *Tensor) Clone() (*Tensor, error) {
	c, err := Empty(t.dt, t.shape...)
	if err != nil {
		return nil, err
	}
	return c, c.CopyFrom(t)
}

// Contiguous is t itself if it is contiguous, else a copy.
func (t *Tensor) Contiguous() (*Tensor, error) {
	if t.contiguous {
		return t, nil
	}
	return t.Clone()
}

// Fill sets every element to v, converted as [Tensor.SetAt] does.
func (t *Tensor) Fill(v any) error {
	if err := t.hostAccess("fill"); err != nil {
		return err
	}
	tmp := scratches.Get().(*scratch)
	defer scratches.Put(tmp)
	elem := unsafe.Pointer(&tmp.a)
	if err := putScalar(t.dt, elem, v); err != nil {
		return err
	}
	if t.numel == 0 {
		return nil
	}
	defer keep(t)
	if t.contiguous {
		kern.Fill(t.dt, t.ptr, t.numel, elem)
		return nil
	}
	size := t.dt.Size()
	p := newPair(t, t)
	p.each(func(dst, _ unsafe.Pointer) bool {
		move(dst, p.aRun, elem, 0, p.n, size)
		return true
	})
	return nil
}

// Zero sets every element to zero. It's an error for a tensor on a device; see [Fill].
func (t *Tensor) Zero() error {
	if t.contiguous && t.OnHost() {
		clear(t.raw())
		keep(t)
		return nil
	}
	return t.Fill(uint8(0)) // a constant of a type that every type converts from
}
