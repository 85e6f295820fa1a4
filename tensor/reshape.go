package tensor

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/dtype"
)

// View is a view of the same elements in the same order in another shape; one dimension may be -1, which means what is
// left. It is an error if strides can't express it; Reshape copies then.
func (t *Tensor) View(shape ...int) (*Tensor, error) {
	shape, err := t.inferShape(shape)
	if err != nil {
		return nil, err
	}
	strides, ok := reshapeStrides(t.shape, t.strides, shape, t.numel)
	if !ok {
		return nil, fmt.Errorf("tensor: shape %v with strides %v can't be seen as %v without a copy", t.shape, t.strides,
			shape)
	}
	return t.view(shape, strides, t.offset), nil
}

// Reshape is View if that is possible, else a contiguous copy of the shape.
func (t *Tensor) Reshape(shape ...int) (*Tensor, error) {
	shape, err := t.inferShape(shape)
	if err != nil {
		return nil, err
	}
	if strides, ok := reshapeStrides(t.shape, t.strides, shape, t.numel); ok {
		return t.view(shape, strides, t.offset), nil
	}
	c, err := t.Clone()
	if err != nil {
		return nil, err
	}
	return c.View(shape...)
}

// Flatten is Reshape to one dimension.
func (t *Tensor) Flatten() (*Tensor, error) { return t.Reshape(t.numel) }

// inferShape replaces a -1 and checks that the number of elements stays.
func (t *Tensor) inferShape(shape []int) ([]int, error) {
	shape = slices.Clone(shape)
	hole := slices.Index(shape, -1)
	if hole >= 0 {
		shape[hole] = 1
	}
	n, err := sizeOf(t.dt, shape)
	if err != nil {
		return nil, err
	}
	if hole >= 0 {
		if n == 0 || t.numel%n != 0 {
			shape[hole] = -1
			return nil, fmt.Errorf("tensor: %d elements can't fill the shape %v", t.numel, shape)
		}
		shape[hole] = t.numel / n
		n = t.numel
	}
	if n != t.numel {
		return nil, fmt.Errorf("tensor: shape %v with %d elements can't become %v with %d", t.shape, t.numel, shape, n)
	}
	return shape, nil
}

// reshapeStrides finds strides that give the elements of an old shape a new one. It goes through both from the back in
// groups. A group is a run of old dimensions that lie together like one: each stride is the next's stride times its
// size. The product of a group must be that of a run of new dimensions.
func reshapeStrides(old, oldStrides, shape []int, numel int) ([]int, bool) {
	if numel == 0 {
		return rowMajor(shape), true
	}
	strides := make([]int, len(shape))
	i, j := len(old)-1, len(shape)-1
	for i >= 0 {
		if old[i] == 1 {
			i--
			continue
		}
		stride, n := oldStrides[i], old[i]
		for i--; i >= 0 && (old[i] == 1 || oldStrides[i] == stride*n); i-- {
			n *= old[i]
		}
		for ; n > 1; j-- {
			if n%shape[j] != 0 {
				return nil, false
			}
			strides[j] = stride
			stride *= shape[j]
			n /= shape[j]
		}
	}
	for ; j >= 0; j-- { // what remains is of size 1
		strides[j] = 1
		if j+1 < len(shape) {
			strides[j] = strides[j+1] * shape[j+1]
		}
	}
	return strides, true
}

// As is a view of the same bytes as elements of another type, in row-major order. The tensor must be contiguous, and
// its bytes as many as the shape's, at an address that suits the type.
func (t *Tensor) As(dt dtype.DType, shape ...int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	switch {
	case err != nil:
		return nil, err
	case !t.contiguous:
		return nil, fmt.Errorf("tensor: %v%v with strides %v isn't contiguous, so its bytes can't be seen as %v%v", t.dt,
			t.shape, t.strides, dt, shape)
	case n*dt.Size() != t.nbytes:
		return nil, fmt.Errorf("tensor: %v%v has %d bytes, %v%v %d", t.dt, t.shape, t.nbytes, dt, shape, n*dt.Size())
	case t.offset*t.dt.Size()%dt.Size() != 0:
		return nil, fmt.Errorf("tensor: %v%v begins at byte %d of its storage, which no %v does", t.dt, t.shape,
			t.offset*t.dt.Size(), dt)
	}
	if err := checkAligned(dt, t.ptr); err != nil {
		return nil, err
	}
	return newTensor(t.store, dt, slices.Clone(shape), rowMajor(shape), t.offset*t.dt.Size()/dt.Size()), nil
}
