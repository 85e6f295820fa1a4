package tensor

import (
	"fmt"
	"slices"
)

// view makes a tensor over the same storage.
func (t *Tensor) view(shape, strides []int, offset int) *Tensor {
	return newTensor(t.store, t.dt, shape, strides, offset)
}

// axis checks a dimension's number; -1 is the last. n is the number of dimensions to choose from.
func axis(dim, n int) (int, error) {
	if dim < -n || dim >= n {
		return 0, fmt.Errorf("tensor: dimension %d of a tensor with %d", dim, n)
	}
	if dim < 0 {
		dim += n
	}
	return dim, nil
}

// Narrow is the view of n entries of dimension dim from start on.
func (t *Tensor) Narrow(dim, start, n int) (*Tensor, error) {
	return t.Slice(dim, start, start+n, 1)
}

// Slice is the view of every step-th entry of dimension dim from start up to but not including end.
func (t *Tensor) Slice(dim, start, end, step int) (*Tensor, error) {
	d, err := axis(dim, t.Dim())
	if err != nil {
		return nil, err
	}
	if start < 0 || end < start || end > t.shape[d] || step < 1 {
		return nil, fmt.Errorf("tensor: range %d:%d:%d of dimension %d in shape %v", start, end, step, dim, t.shape)
	}
	shape, strides := slices.Clone(t.shape), slices.Clone(t.strides)
	shape[d] = 0
	if end > start {
		shape[d] = (end-start-1)/step + 1
	}
	offset := t.offset + start*strides[d]
	if shape[d] > 1 {
		strides[d] *= step
	}
	return t.view(shape, strides, offset), nil
}

// Select is the view of entry i of dimension dim, without that dimension.
func (t *Tensor) Select(dim, i int) (*Tensor, error) {
	d, err := axis(dim, t.Dim())
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= t.shape[d] {
		return nil, fmt.Errorf("tensor: entry %d of dimension %d in shape %v", i, dim, t.shape)
	}
	return t.view(without(t.shape, d), without(t.strides, d), t.offset+i*t.strides[d]), nil
}

func without(list []int, i int) []int { return slices.Delete(slices.Clone(list), i, i+1) }

// Permute is the view whose dimension i is dims[i] of t.
func (t *Tensor) Permute(dims ...int) (*Tensor, error) {
	n := t.Dim()
	if len(dims) != n {
		return nil, fmt.Errorf("tensor: permutation %v of %d dimensions", dims, n)
	}
	shape, strides, seen := make([]int, n), make([]int, n), make([]bool, n)
	for i, dim := range dims {
		d, err := axis(dim, n)
		if err != nil {
			return nil, err
		}
		if seen[d] {
			return nil, fmt.Errorf("tensor: permutation %v names dimension %d twice", dims, d)
		}
		seen[d] = true
		shape[i], strides[i] = t.shape[d], t.strides[d]
	}
	return t.view(shape, strides, t.offset), nil
}

// Transpose is the view with two dimensions exchanged.
func (t *Tensor) Transpose(dim0, dim1 int) (*Tensor, error) {
	a, err := axis(dim0, t.Dim())
	if err != nil {
		return nil, err
	}
	b, err := axis(dim1, t.Dim())
	if err != nil {
		return nil, err
	}
	shape, strides := slices.Clone(t.shape), slices.Clone(t.strides)
	shape[a], shape[b] = shape[b], shape[a]
	strides[a], strides[b] = strides[b], strides[a]
	return t.view(shape, strides, t.offset), nil
}

// Squeeze is the view without the named dimensions that have size 1, or without all such if none is named.
func (t *Tensor) Squeeze(dims ...int) (*Tensor, error) {
	drop := make([]bool, t.Dim())
	for _, dim := range dims {
		d, err := axis(dim, t.Dim())
		if err != nil {
			return nil, err
		}
		drop[d] = true
	}
	var shape, strides []int
	for i, n := range t.shape {
		if n != 1 || len(dims) > 0 && !drop[i] {
			shape, strides = append(shape, n), append(strides, t.strides[i])
		}
	}
	return t.view(shape, strides, t.offset), nil
}

// Unsqueeze is the view with a dimension of size 1 inserted before dimension dim; -1 appends it.
func (t *Tensor) Unsqueeze(dim int) (*Tensor, error) {
	d, err := axis(dim, t.Dim()+1)
	if err != nil {
		return nil, err
	}
	stride := 1
	if d < t.Dim() {
		stride = t.strides[d] * max(t.shape[d], 1)
	}
	return t.view(slices.Insert(slices.Clone(t.shape), d, 1), slices.Insert(slices.Clone(t.strides), d, stride), t.offset),
		nil
}

// Expand is the view of the given shape that repeats dimensions of size 1 and adds dimensions in front, all with
// stride 0. Size -1 keeps a dimension. Many indices then name one element, so the view can't be written as a whole.
func (t *Tensor) Expand(shape ...int) (*Tensor, error) {
	added := len(shape) - t.Dim()
	if added < 0 {
		return nil, fmt.Errorf("tensor: shape %v expanded to fewer dimensions, %v", t.shape, shape)
	}
	shape = slices.Clone(shape)
	strides := make([]int, len(shape))
	for i := range t.shape {
		have, want := t.shape[i], &shape[added+i]
		switch {
		case *want == -1 || *want == have:
			*want = have
			strides[added+i] = t.strides[i]
		case have != 1:
			return nil, fmt.Errorf("tensor: shape %v can't be expanded to %v", t.shape, shape)
		}
	}
	if _, err := sizeOf(t.dt, shape); err != nil {
		return nil, err
	}
	return t.view(shape, strides, t.offset), nil
}

// Split is a list of views, each of n entries of dimension dim, the last perhaps of fewer. An empty dimension gives
// one.
func (t *Tensor) Split(n, dim int) ([]*Tensor, error) {
	d, err := axis(dim, t.Dim())
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("tensor: split into pieces of %d", n)
	}
	var list []*Tensor
	for start := 0; start == 0 || start < t.shape[d]; {
		m := min(n, t.shape[d]-start)
		v, err := t.Narrow(d, start, m)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if start += m; m == 0 {
			break
		}
	}
	return list, nil
}

// Chunk is Split into n pieces of equal size, as far as that goes: the last may be smaller and there may be fewer.
func (t *Tensor) Chunk(n, dim int) ([]*Tensor, error) {
	d, err := axis(dim, t.Dim())
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("tensor: %d chunks", n)
	}
	return t.Split(max((t.shape[d]+n-1)/n, 1), d)
}

// HasInternalOverlap reports whether two indices may name the same memory. It is exact for views made by this package;
// for strides of other origin it may be true although no two elements coincide, never false although some do.
func (t *Tensor) HasInternalOverlap() bool {
	if t.contiguous {
		return false
	}
	// Taken from the smallest stride up, each must step over all that the ones before it can reach.
	order := make([]int, 0, t.Dim())
	for i, n := range t.shape {
		if n > 1 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return t.strides[a] - t.strides[b] })
	reach := 0
	for _, i := range order {
		if t.strides[i] <= reach {
			return true
		}
		reach += (t.shape[i] - 1) * t.strides[i]
	}
	return false
}

// Overlaps reports whether the spans of memory from first to last element of two tensors meet.
func (t *Tensor) Overlaps(u *Tensor) bool {
	a, b := uintptr(t.ptr), uintptr(u.ptr)
	return t.numel > 0 && u.numel > 0 && a < b+uintptr(u.extent()) && b < a+uintptr(t.extent())
}
