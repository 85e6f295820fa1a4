package kern_test

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/kern"
)

// Two ranks that see each other's memory sum it in place.
func ExampleReduce() {
	a := []float32{1, 2, 3}
	b := []float32{10, 20, 30}
	both := []unsafe.Pointer{unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])}
	kern.Reduce(kern.Sum, dtype.Float32, both, both, len(a))
	fmt.Println(a, b)
	// Output: [11 22 33] [11 22 33]
}

func ExampleConvert() {
	x := []float64{1.5, -2.75, 1e9}
	y := make([]int8, len(x))
	kern.Convert(dtype.Int8, unsafe.Pointer(&y[0]), dtype.Float64, unsafe.Pointer(&x[0]), len(x))
	fmt.Println(y)
	// Output: [1 -2 127]
}

func ExampleFill() {
	x := make([]int32, 5)
	seven := int32(7)
	kern.Fill(dtype.Int32, unsafe.Pointer(&x[0]), len(x), unsafe.Pointer(&seven))
	fmt.Println(x)
	// Output: [7 7 7 7 7]
}
