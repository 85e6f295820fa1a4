package tensor_test

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A slice becomes a tensor without a copy: what is done to one is seen in the other.
func ExampleOf() {
	grads := []float32{1, 2, 3}
	t := tensor.Of(grads)
	t.SetAt(20, 1)
	fmt.Println(grads, t.DType(), t.Shape())
	// Output: [1 20 3] float32 [3]
}

// The elements of a matrix of gonum, mat.Dense's RawMatrix().Data, are a []float64, row by row; a tensor wraps them as
// they are. examples/gonum all-reduces such matrices, and columns of them.
func ExampleFromSlice() {
	raw := struct { // as blas64.General has them
		Rows, Cols int
		Data       []float64
	}{2, 3, []float64{1, 2, 3, 4, 5, 6}}
	t, err := tensor.FromSlice(raw.Data, raw.Rows, raw.Cols)
	if err != nil {
		fmt.Println(err)
		return
	}
	t.SetAt(60, 1, 2)
	fmt.Println(raw.Data, t.Shape(), t.IsContiguous())
	// Output: [1 2 3 4 5 60] [2 3] true
}

// A column of a matrix is a view with gaps. Communicators want one piece of memory, which Contiguous gives; CopyFrom
// brings it back.
func ExampleTensor_Contiguous() {
	data := []float64{1, 2, 3, 4, 5, 6}
	matrix := tensor.Must(tensor.FromSlice(data, 2, 3))
	column := tensor.Must(matrix.Select(1, 2))
	packed, err := column.Contiguous()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(column.IsContiguous(), column.Strides(), packed.IsContiguous(), packed.At(0), packed.At(1))
	packed.Fill(0) // or an all-reduce
	if err := column.CopyFrom(packed); err != nil {
		fmt.Println(err)
	}
	fmt.Println(data)
	// Output:
	// false [3] true 3 6
	// [1 2 0 4 5 0]
}

// Memory that peers on the host can map is used as a slice, too. It's freed when the slice isn't used any more.
func ExampleSlice() {
	t, err := tensor.ZerosShared(dtype.Int32, 2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Free()
	s, err := tensor.Slice[int32](t)
	if err != nil {
		fmt.Println(err)
		return
	}
	s[3] = 7
	fmt.Println(s, t.At(1, 1))
	_, err = tensor.Slice[float32](t)
	fmt.Println(err != nil)
	// Output:
	// [0 0 0 7] 7
	// true
}
