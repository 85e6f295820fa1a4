package chorusarrow

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A NullsError says that an array has nulls, which a tensor has no form for. [Masked] has one.
type NullsError struct {
	Column string // of a record batch; empty for an array by itself
	Nulls  int
	Len    int
}

func (e *NullsError) Error() string {
	what := "an array"
	if e.Column != "" {
		what = fmt.Sprintf("column %q", e.Column)
	}
	return fmt.Sprintf("chorusarrow: %s has %d nulls among %d values, which a tensor can't hold; Masked gives a mask of "+
		"them", what, e.Nulls, e.Len)
}

// dtypes are the element types of Arrow's types of a fixed width: numbers, and the integers that dates and times are.
var dtypes = map[arrow.Type]dtype.DType{
	arrow.INT8: dtype.Int8, arrow.INT16: dtype.Int16, arrow.INT32: dtype.Int32, arrow.INT64: dtype.Int64,
	arrow.UINT8: dtype.Uint8, arrow.UINT16: dtype.Uint16, arrow.UINT32: dtype.Uint32, arrow.UINT64: dtype.Uint64,
	arrow.FLOAT16: dtype.Float16, arrow.FLOAT32: dtype.Float32, arrow.FLOAT64: dtype.Float64,
	arrow.DATE32: dtype.Int32, arrow.DATE64: dtype.Int64, arrow.TIME32: dtype.Int32, arrow.TIME64: dtype.Int64,
	arrow.TIMESTAMP: dtype.Int64, arrow.DURATION: dtype.Int64,
}

// arrowTypes are the Arrow types of element types.
var arrowTypes = map[dtype.DType]arrow.DataType{
	dtype.Int8: arrow.PrimitiveTypes.Int8, dtype.Int16: arrow.PrimitiveTypes.Int16,
	dtype.Int32: arrow.PrimitiveTypes.Int32, dtype.Int64: arrow.PrimitiveTypes.Int64,
	dtype.Uint8: arrow.PrimitiveTypes.Uint8, dtype.Uint16: arrow.PrimitiveTypes.Uint16,
	dtype.Uint32: arrow.PrimitiveTypes.Uint32, dtype.Uint64: arrow.PrimitiveTypes.Uint64,
	dtype.Float16: arrow.FixedWidthTypes.Float16, dtype.Float32: arrow.PrimitiveTypes.Float32,
	dtype.Float64: arrow.PrimitiveTypes.Float64,
}

// Tensor returns the values of an array as a tensor, without a copy: one dimension for an array of numbers, dates or
// times, and one more for each fixed-size list around them. An array with nulls is a *NullsError.
//
// The tensor is valid until a is released. Arrow's arrays are never changed, so that a result belongs elsewhere
// (comm.Into), unless the program knows that it alone has the array.
func Tensor(a arrow.Array) (*tensor.Tensor, error) {
	if n := nulls(a); n > 0 {
		return nil, &NullsError{Nulls: n, Len: a.Len()}
	}
	return values(a)
}

// Masked returns the values of an array of one dimension as [Tensor] does, and a mask: 1 where there is a value, 0 at a
// null, of type uint8. The elements of the tensor at nulls aren't specified.
func Masked(a arrow.Array) (t, mask *tensor.Tensor, err error) {
	if _, isList := a.(*array.FixedSizeList); isList {
		return nil, nil, fmt.Errorf("chorusarrow: %s has no mask of one dimension", a.DataType())
	}
	if t, err = values(a); err != nil {
		return nil, nil, err
	}
	m := make([]uint8, a.Len())
	for i := range m {
		if a.IsValid(i) {
			m[i] = 1
		}
	}
	return t, tensor.Of(m), nil
}

// nulls counts those of an array and of what it holds.
func nulls(a arrow.Array) int {
	n := a.NullN()
	if l, ok := a.(*array.FixedSizeList); ok {
		part := items(l)
		defer part.Release()
		n += nulls(part)
	}
	return n
}

// items are the values of a list's own part of its child.
func items(l *array.FixedSizeList) arrow.Array {
	k := int64(l.DataType().(*arrow.FixedSizeListType).Len())
	from := int64(l.Data().Offset()) * k
	return array.NewSlice(l.ListValues(), from, from+int64(l.Len())*k)
}

func values(a arrow.Array) (*tensor.Tensor, error) {
	if l, ok := a.(*array.FixedSizeList); ok {
		part := items(l)
		defer part.Release() // a holds the memory
		t, err := values(part)
		if err != nil {
			return nil, err
		}
		k := int(l.DataType().(*arrow.FixedSizeListType).Len())
		return t.View(append([]int{l.Len(), k}, t.Shape()[1:]...)...)
	}
	dt, ok := dtypes[a.DataType().ID()]
	if !ok {
		why := "values of no fixed width"
		if a.DataType().ID() == arrow.BOOL {
			why = "bits; cast them to uint8"
		}
		return nil, fmt.Errorf("chorusarrow: an array of %s can't be a tensor: it has %s", a.DataType(), why)
	}
	d := a.Data()
	if d.Len() == 0 || d.Buffers()[1] == nil {
		return tensor.Empty(dt, d.Len())
	}
	from, to := d.Offset()*dt.Size(), (d.Offset()+d.Len())*dt.Size()
	return tensor.FromBytes(dt, d.Buffers()[1].Bytes()[from:to:to], d.Len())
}

// Array returns the elements of a tensor as an array, without a copy: of numbers for one dimension, and of a fixed-size
// list more for each other one. The tensor lies on the host, and is contiguous. It must not be changed while the array
// is in use.
func Array(t *tensor.Tensor) (arrow.Array, error) {
	of, ok := arrowTypes[t.DType()]
	if !ok {
		return nil, fmt.Errorf("chorusarrow: Arrow has no type of numbers for %v", t.DType())
	}
	if t.Dim() == 0 || !t.IsContiguous() || !t.OnHost() {
		return nil, fmt.Errorf("chorusarrow: a tensor of shape %v on %s is no array: it must be contiguous, on the host, "+
			"and have a dimension", t.Shape(), t.Device())
	}
	raw := unsafe.Slice((*byte)(t.Pointer()), t.NBytes())
	b := memory.NewBufferWithAllocator(raw, holder{memory.DefaultAllocator, t})
	d := array.NewData(of, t.NumEl(), []*memory.Buffer{nil, b}, nil, 0, 0)
	b.Release() // d has it
	for i := t.Dim() - 1; i > 0; i-- {
		k, n := t.Shape()[i], 1
		for _, s := range t.Shape()[:i] {
			n *= s
		}
		list := array.NewData(arrow.FixedSizeListOfNonNullable(int32(k), d.DataType()), n, []*memory.Buffer{nil},
			[]arrow.ArrayData{d}, 0, 0)
		d.Release()
		d = list
	}
	defer d.Release()
	return array.MakeFromData(d), nil
}

// holder is the allocator of a buffer that is a tensor's memory: it keeps the tensor.
type holder struct {
	memory.Allocator
	t *tensor.Tensor
}

// Free does nothing to the memory, which is the tensor's.
func (h holder) Free([]byte) { runtime.KeepAlive(h.t) }

// Columns returns the columns of a record batch, each as Tensor does, in their order. An error names the column.
func Columns(b arrow.RecordBatch) ([]*tensor.Tensor, error) {
	all := make([]*tensor.Tensor, b.NumCols())
	for i := range all {
		t, err := Tensor(b.Column(i))
		if e, ok := err.(*NullsError); ok {
			e.Column = b.ColumnName(i)
		} else if err != nil {
			err = fmt.Errorf("column %q: %w", b.ColumnName(i), err)
		}
		if err != nil {
			return nil, err
		}
		all[i] = t
	}
	return all, nil
}

// RecordBatch returns tensors of as many rows as columns of a record batch, each as Array does.
func RecordBatch(names []string, columns ...*tensor.Tensor) (arrow.RecordBatch, error) {
	if len(names) != len(columns) || len(columns) == 0 {
		return nil, fmt.Errorf("chorusarrow: %d names for %d columns", len(names), len(columns))
	}
	fields, arrays := make([]arrow.Field, len(names)), make([]arrow.Array, len(names))
	defer func() {
		for _, a := range arrays {
			if a != nil {
				a.Release() // the batch has it
			}
		}
	}()
	for i, t := range columns {
		a, err := Array(t)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", names[i], err)
		}
		arrays[i], fields[i] = a, arrow.Field{Name: names[i], Type: a.DataType()}
		if a.Len() != arrays[0].Len() {
			return nil, fmt.Errorf("chorusarrow: column %q has %d rows, and %q %d", names[i], a.Len(), names[0],
				arrays[0].Len())
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(arrays[0].Len())), nil
}
