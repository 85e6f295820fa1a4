package tensor

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
)

// heapAlign is a cache line, and as much as any vector load likes.
const heapAlign = 64

// Of wraps a Go slice as a tensor of one dimension, without a copy. Use View for other shapes, or [FromSlice].
func Of[T dtype.Element](data []T) *Tensor {
	return wrap(sliceStorage(data), dtype.Of[T](), []int{len(data)})
}

// FromSlice wraps a Go slice as a tensor of the given shape, without a copy. The shape must have len(data) elements.
func FromSlice[T dtype.Element](data []T, shape ...int) (*Tensor, error) {
	dt := dtype.Of[T]()
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	if n != len(data) {
		return nil, fmt.Errorf("tensor: shape %v has %d elements, the slice has %d", shape, n, len(data))
	}
	return wrap(sliceStorage(data), dt, shape), nil
}

func sliceStorage[T any](data []T) *storage {
	p := unsafe.SliceData(data)
	return &storage{base: unsafe.Pointer(p), bytes: len(data) * int(unsafe.Sizeof(*p))}
}

// FromBytes wraps bytes as a tensor, without a copy. The slice must be exactly as long as the tensor and aligned for
// its elements.
func FromBytes(dt dtype.DType, data []byte, shape ...int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	if n*dt.Size() != len(data) {
		return nil, fmt.Errorf("tensor: shape %v of %v has %d bytes, the slice has %d", shape, dt, n*dt.Size(), len(data))
	}
	if err := checkAligned(dt, unsafe.Pointer(unsafe.SliceData(data))); err != nil {
		return nil, err
	}
	return wrap(sliceStorage(data), dt, shape), nil
}

// FromPointer wraps memory as a contiguous tensor, without a copy. The caller vouches that the memory is there and,
// unless it is Go's, stays there for as long as the tensor and its views are in use.
func FromPointer(dt dtype.DType, p unsafe.Pointer, shape ...int) (*Tensor, error) {
	return FromStrided(dt, p, shape, rowMajor(shape))
}

// FromStrided is FromPointer for elements that do not lie together. Strides are in elements and not negative.
func FromStrided(dt dtype.DType, p unsafe.Pointer, shape, strides []int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	if len(strides) != len(shape) {
		return nil, fmt.Errorf("tensor: shape %v with strides %v", shape, strides)
	}
	last := 0
	if n > 0 {
		for i, s := range strides {
			span := s * (shape[i] - 1)
			if s < 0 || s > 0 && span/s != shape[i]-1 || last+span < last || (last+span+1) > maxSpan/dt.Size() {
				return nil, fmt.Errorf("tensor: strides %v of shape %v are out of range", strides, shape)
			}
			last += span
		}
		if p == nil {
			return nil, fmt.Errorf("tensor: nil pointer for shape %v", shape)
		}
		last++
	}
	if err := checkAligned(dt, p); err != nil {
		return nil, err
	}
	st := &storage{base: p, bytes: last * dt.Size()}
	return newTensor(st, dt, slices.Clone(shape), slices.Clone(strides), 0), nil
}

// maxHeap bounds one tensor in Go memory; beyond its address space Go panics.
const maxHeap = 1 << 47

// maxSpan bounds what lies between first and last byte: the address space of any supported processor is smaller.
const maxSpan = 1 << 57

// Empty makes a tensor in Go memory, aligned to 64 bytes. Don't rely on its contents.
func Empty(dt dtype.DType, shape ...int) (*Tensor, error) { return Zeros(dt, shape...) }

// Zeros makes a tensor of zeros in Go memory, aligned to 64 bytes.
func Zeros(dt dtype.DType, shape ...int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	bytes := n * dt.Size()
	if bytes > maxHeap {
		return nil, fmt.Errorf("tensor: shape %v of %v needs %d bytes", shape, dt, bytes)
	}
	data := make([]byte, bytes+heapAlign)
	base := unsafe.Pointer(unsafe.SliceData(data))
	base = unsafe.Add(base, -uintptr(base)%heapAlign)
	return wrap(&storage{base: base, bytes: bytes}, dt, shape), nil
}

// Full makes a tensor in Go memory with all elements equal to v, converted as [Tensor.SetAt] does.
func Full(dt dtype.DType, v any, shape ...int) (*Tensor, error) {
	t, err := Empty(dt, shape...)
	if err != nil {
		return nil, err
	}
	return t, t.Fill(v)
}

// EmptyShared makes a tensor in memory that peers on this host can map, with undefined contents; see [Tensor.Free].
func EmptyShared(dt dtype.DType, shape ...int) (*Tensor, error) {
	return shared(hostmem.Alloc, dt, shape)
}

// ZerosShared is EmptyShared with all elements zero.
func ZerosShared(dt dtype.DType, shape ...int) (*Tensor, error) {
	return shared(hostmem.AllocZero, dt, shape)
}

func shared(alloc func(int) (*hostmem.Block, error), dt dtype.DType, shape []int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	b, err := alloc(n * dt.Size())
	if err != nil {
		return nil, err
	}
	return wrap(&storage{base: b.Pointer(), bytes: b.Len(), block: b}, dt, shape), nil
}
