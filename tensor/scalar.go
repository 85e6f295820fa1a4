package tensor

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
)

// at is the address of an element. It panics if there is none, or if it's on a device.
func (t *Tensor) at(index []int) unsafe.Pointer {
	if t.store.place != nil {
		if err := t.hostAccess("element"); err != nil {
			panic(err)
		}
	}
	if len(index) != len(t.shape) {
		panic(fmt.Sprintf("tensor: index %v of shape %v", index, t.shape))
	}
	off := 0
	for i, x := range index {
		if x < 0 || x >= t.shape[i] {
			panic(fmt.Sprintf("tensor: index %v out of shape %v", index, t.shape))
		}
		off += x * t.strides[i]
	}
	return unsafe.Add(t.ptr, off*t.dt.Size())
}

// At is one element as a float64; of a complex number it is the real part. Indices out of range panic.
func (t *Tensor) At(index ...int) float64 {
	var v float64
	kern.Convert(dtype.Float64, unsafe.Pointer(&v), t.dt, t.at(index), 1)
	keep(t)
	return v
}

// AtComplex is one element as a complex128. Indices out of range panic.
func (t *Tensor) AtComplex(index ...int) complex128 {
	var v complex128
	kern.Convert(dtype.Complex128, unsafe.Pointer(&v), t.dt, t.at(index), 1)
	keep(t)
	return v
}

// Value is one element as a value of its Go type, such as float32 or [dtype.BF16]. Indices out of range panic.
func (t *Tensor) Value(index ...int) any {
	v := load(t.dt, t.at(index))
	keep(t)
	return v
}

func load(dt dtype.DType, p unsafe.Pointer) any {
	switch dt {
	case dtype.Bool:
		return *(*uint8)(p) != 0 // not as a Go bool, which a byte beyond 1 would break
	case dtype.Uint8:
		return *(*uint8)(p)
	case dtype.Uint16:
		return *(*uint16)(p)
	case dtype.Uint32:
		return *(*uint32)(p)
	case dtype.Uint64:
		return *(*uint64)(p)
	case dtype.Int8:
		return *(*int8)(p)
	case dtype.Int16:
		return *(*int16)(p)
	case dtype.Int32:
		return *(*int32)(p)
	case dtype.Int64:
		return *(*int64)(p)
	case dtype.Float16:
		return *(*dtype.F16)(p)
	case dtype.BFloat16:
		return *(*dtype.BF16)(p)
	case dtype.Float8E4M3FN:
		return *(*dtype.F8E4M3FN)(p)
	case dtype.Float8E5M2:
		return *(*dtype.F8E5M2)(p)
	case dtype.Float32:
		return *(*float32)(p)
	case dtype.Float64:
		return *(*float64)(p)
	case dtype.Complex64:
		return *(*complex64)(p)
	default:
		return *(*complex128)(p)
	}
}

// SetAt sets one element. v is a value of any element type, or an int or uint, and is converted as [kern.Convert]
// describes; another type of v is an error. Indices out of range panic.
func (t *Tensor) SetAt(v any, index ...int) error {
	p := t.at(index)
	defer keep(t)
	return putScalar(t.dt, p, v)
}

// putScalar writes v as an element of type dt at p.
func putScalar(dt dtype.DType, p unsafe.Pointer, v any) error {
	switch v := v.(type) {
	case bool:
		put(dt, p, v)
	case int:
		put(dt, p, int64(v))
	case uint:
		put(dt, p, uint64(v))
	case uint8:
		put(dt, p, v)
	case uint16:
		put(dt, p, v)
	case uint32:
		put(dt, p, v)
	case uint64:
		put(dt, p, v)
	case int8:
		put(dt, p, v)
	case int16:
		put(dt, p, v)
	case int32:
		put(dt, p, v)
	case int64:
		put(dt, p, v)
	case dtype.F16:
		put(dt, p, v)
	case dtype.BF16:
		put(dt, p, v)
	case dtype.F8E4M3FN:
		put(dt, p, v)
	case dtype.F8E5M2:
		put(dt, p, v)
	case float32:
		put(dt, p, v)
	case float64:
		put(dt, p, v)
	case complex64:
		put(dt, p, v)
	case complex128:
		put(dt, p, v)
	default:
		return fmt.Errorf("tensor: a %T can't be an element", v)
	}
	return nil
}

func put[T dtype.Element](dt dtype.DType, p unsafe.Pointer, v T) {
	kern.Convert(dt, p, dtype.Of[T](), unsafe.Pointer(&v), 1)
}
