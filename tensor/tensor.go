package tensor

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
)

// Tensor is a strided view of elements in a storage. It is immutable but for the elements.
type Tensor struct {
	ptr        unsafe.Pointer // first element
	numel      int
	nbytes     int
	seg        *hostmem.Segment // nil unless the storage is shared
	segOff     int              // of the first element
	dt         dtype.DType
	contiguous bool
	shape      []int
	strides    []int // in elements
	offset     int   // in elements, from the start of the storage
	store      *storage
}

// storage is the memory that views share.
type storage struct {
	base  unsafe.Pointer
	bytes int
	block *hostmem.Block // holds shared memory; nil for other memory, which base itself keeps alive if it is Go's
	place *place         // on a device, or pinned; nil for ordinary host memory
	of    *storage       // what this is another view of, and keeps alive; nil if it's none
}

// newTensor describes memory whose bounds and alignment have been checked.
func newTensor(st *storage, dt dtype.DType, shape, strides []int, offset int) *Tensor {
	t := &Tensor{dt: dt, shape: shape, strides: strides, offset: offset, store: st, numel: 1}
	for _, d := range shape {
		t.numel *= d
	}
	t.nbytes = t.numel * dt.Size()
	t.ptr = st.base
	if t.numel > 0 { // an empty view may begin where the storage ends, and a pointer must not
		t.ptr = unsafe.Add(st.base, offset*dt.Size())
	}
	t.contiguous = isContiguous(shape, strides, t.numel)
	if seg, off, ok := hostmem.Find(t.ptr, t.extent()); ok {
		t.seg, t.segOff = seg, off
	}
	return t
}

// extent is the number of bytes from the first element to the end of the last.
func (t *Tensor) extent() int {
	if t.numel == 0 {
		return 0
	}
	last := 0
	for i, d := range t.shape {
		last += (d - 1) * t.strides[i]
	}
	return (last + 1) * t.dt.Size()
}

func isContiguous(shape, strides []int, numel int) bool {
	if numel == 0 {
		return true
	}
	want := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != want {
			return false
		}
		want *= shape[i]
	}
	return true
}

// rowMajor returns the strides of a contiguous tensor.
func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	s := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = s
		s *= max(shape[i], 1)
	}
	return strides
}

// CheckShape returns an error if there can be no tensor of an element type and a shape, on any machine.
func CheckShape(dt dtype.DType, shape ...int) error {
	_, err := sizeOf(dt, shape)
	return err
}

// sizeOf checks a type and a shape and returns the number of elements.
func sizeOf(dt dtype.DType, shape []int) (numel int, err error) {
	if !dt.Valid() {
		return 0, fmt.Errorf("tensor: element type %v", dt)
	}
	numel, room := 1, dt.Size() // room counts empty dimensions as one, so that strides can't overflow either
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("tensor: shape %v has a negative dimension", shape)
		}
		hi, lo := bits.Mul(uint(room), uint(max(d, 1)))
		if hi != 0 || lo > math.MaxInt {
			return 0, fmt.Errorf("tensor: shape %v of %v is larger than the address space", shape, dt)
		}
		room = int(lo)
		numel *= d
	}
	return numel, nil
}

// wrap makes a contiguous tensor over memory that holds exactly the shape's elements.
func wrap(st *storage, dt dtype.DType, shape []int) *Tensor {
	shape = slices.Clone(shape)
	return newTensor(st, dt, shape, rowMajor(shape), 0)
}

// checkAligned reports memory whose elements a processor or Go's checks would refuse to load.
func checkAligned(dt dtype.DType, p unsafe.Pointer) error {
	align := dt.Size()
	if dt.IsComplex() {
		align /= 2
	}
	if uintptr(p)%uintptr(align) != 0 {
		return fmt.Errorf("tensor: address %p is not aligned to %d bytes, which %v needs", p, align, dt)
	}
	return nil
}

// DType is the type of the elements.
func (t *Tensor) DType() dtype.DType { return t.dt }

// NumEl is the number of elements.
func (t *Tensor) NumEl() int { return t.numel }

// NBytes is the size of the elements in bytes, whether or not they lie together.
func (t *Tensor) NBytes() int { return t.nbytes }

// IsContiguous reports whether the elements lie in row-major order without gaps: NBytes bytes from Pointer on.
func (t *Tensor) IsContiguous() bool { return t.contiguous }

// Pointer is the address of the first element. It is good while the tensor is reachable; it means nothing if NumEl is
// 0.
func (t *Tensor) Pointer() unsafe.Pointer { return t.ptr }

// Shared tells where the first element lies if the tensor's memory is a part of a segment of this process that peers
// can map.
func (t *Tensor) Shared() (seg *hostmem.Segment, offset int, ok bool) {
	return t.seg, t.segOff, t.seg != nil
}

// SharesStorage reports whether two tensors are views of the same storage.
func (t *Tensor) SharesStorage(u *Tensor) bool { return t.store == u.store }

// Device names the device whose memory this is: "cpu", "accinte:1".
func (t *Tensor) Device() string { return t.On().Name() }

// Dim is the number of dimensions.
func (t *Tensor) Dim() int { return len(t.shape) }

// Shape returns the dimensions. The slice belongs to the tensor; don't change it.
func (t *Tensor) Shape() []int { return t.shape }

// Strides returns, for each dimension, the distance in elements between neighbours. The slice belongs to the tensor.
func (t *Tensor) Strides() []int { return t.strides }

// Offset is the distance in elements from the start of the storage to the first element.
func (t *Tensor) Offset() int { return t.offset }

// Free returns memory from [EmptyShared], [EmptyOn], [EmptyPinned] and similar functions to the pool, for this tensor
// and all its views; none of them may be used afterwards. For other memory it does nothing.
//
// Without Free the memory returns when the last tensor over it has become unreachable, provided that no slice of it was
// taken ([Slice], [Tensor.Bytes]). Otherwise it stays, since the garbage collector can't see whether such a slice is
// still in use.
func (t *Tensor) Free() {
	if b := t.store.block; b != nil {
		b.Free()
	}
	if pl := t.store.place; pl != nil {
		pl.release()
	}
}

// Bytes returns the memory of a contiguous tensor.
func (t *Tensor) Bytes() ([]byte, error) {
	if err := t.hostAccess("bytes"); err != nil {
		return nil, err
	}
	if !t.contiguous {
		return nil, fmt.Errorf("tensor: shape %v with strides %v is not contiguous", t.shape, t.strides)
	}
	if t.store.block != nil {
		t.store.block.Bytes() // tells the pool that a slice is out
	}
	return t.raw(), nil
}

// raw is Bytes for this package's own, passing use of a contiguous tensor.
func (t *Tensor) raw() []byte { return unsafe.Slice((*byte)(t.ptr), t.nbytes) }

// Slice returns the elements of a contiguous tensor of T's type, without a copy.
func Slice[T dtype.Element](t *Tensor) ([]T, error) {
	if want := dtype.Of[T](); want != t.dt {
		return nil, fmt.Errorf("tensor: elements are %v, not %v", t.dt, want)
	}
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), t.numel), nil
}

// Must returns t, and panics if err is not nil.
func Must(t *Tensor, err error) *Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

// keep holds tensors, and so their storage, alive until here.
func keep(list ...*Tensor) {
	for _, t := range list {
		runtime.KeepAlive(t)
	}
}
