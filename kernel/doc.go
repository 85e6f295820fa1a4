// Package kernel generates kernels: tensor operations as source text in one dialect that CUDA's NVRTC, HIP's hiprtc and
// any OpenCL driver compile at run time.
//
// A [Plan] gathers the runs of kernels that carry an operation out. Each run is a [Call]: a [Spec], which describes the
// kernel and is the key of its loaded function, the grid, and the arguments.
//
//	var p kernel.Plan
//	err := p.Elementwise("add", dtype.Float32, []kernel.Operand{out}, []kernel.Operand{x, y}, kernel.Float(1))
//	err = p.Reduce("sum", dtype.Float32, []kernel.Operand{total}, out, nil)
//	err = loaded.Run(stream, &p) // a Loader of the device
//
// A description is data: [Spec] has the family, the operation, the types, the number of dimensions and the width of
// indexes, and no sizes, strides or addresses, which are arguments. There's one generator a family. [Spec.Source] is a
// pure function.
//
// Kernels whose C doesn't depend on a number of operands are files in text. A generator writes what a spec says as
// definitions, such as the types of elements and how they become numbers, and then the file, which chooses by them. The
// text of a loaded kernel has both, so that they are part of the key of the cache on disk, and errors show its lines.
//
// Invariants:
//   - A kernel reads and writes elements of its operands and of its scratch memory alone, whatever the sizes are and
//     however many threads its blocks have beyond them.
//   - Indexes have 64 bits only where a number that a kernel counts to, or how far an operand reaches in all of its
//     dimensions together, needs more than 30.
//   - A result of no elements is no run. A kernel needs no dimension: a tensor of none has one element.
//   - Sums are added in an order that depends on sizes, strides and the kind of device alone, so that they have the same
//     bits each time.
//   - A plan that is reset and used again allocates nothing.
package kernel
