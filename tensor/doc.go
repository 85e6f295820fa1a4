// Package tensor gives memory a shape: a [Tensor] is a strided view of elements of one type.
//
//	g := tensor.Of(grads)                                // an ordinary []float32, wrapped without a copy
//	x, err := tensor.EmptyShared(dtype.BFloat16, 64, 1024) // memory that peers on this host can map
//	row, err := x.Select(0, 3)                           // views share memory
//	err = row.CopyFrom(other)                            // any strides, converting between element types
//	s, err := tensor.Slice[float32](g)                   // back to Go
//
// # Invariants
//
//   - The product of a tensor's dimensions, times the element size, fits an int, dimensions are not negative and
//     strides are not negative. No dimensions means one element; a dimension of 0 means none.
//   - All elements lie within the storage and are aligned for their type. Bools are bytes 0 or 1.
//   - A tensor never changes its shape, strides, type or place; views are new tensors. What it describes may be written
//     by any code that has the memory. So tensors may be used by any number of goroutines, and access to the elements
//     follows the rules of Go's slices.
//   - A tensor keeps its storage alive. Slices of it do so if it is Go memory; see [Tensor.Free] for shared memory.
//   - Arguments that do not fit are errors that say what does not fit; only indexing single elements panics, as Go's
//     indexing does. [Must] turns errors into panics where the arguments are constants.
//
// Files in the formats of NumPy ([ReadNPY]) and safetensors ([ReadSafetensors]) come in and go out. Both are
// little-endian, as is memory on every supported processor.
package tensor
