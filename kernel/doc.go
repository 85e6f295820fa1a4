// Package kernel has the tensor operations of devices. A [Plan] gathers the runs of kernels that carry an operation
// out. Each run is a [loader.Call]: a [text.Spec], which describes the kernel and is the key of its loaded function,
// the grid, and the arguments.
//
//	var p kernel.Plan
//	err := p.Elementwise("add", dtype.Float32, []kernel.Operand{out}, []kernel.Operand{x, y}, kernel.Float(1))
//	err = p.Reduce("sum", dtype.Float32, []kernel.Operand{total}, out, nil)
//	err = loaded.Run(stream, p.Calls) // a loader.Loader of the device
//
// A description is data: a spec has the family, the operation, the types, the number of dimensions and the width of
// indexes, and no sizes, strides or addresses, which are arguments. There's one generator a family, beside the method
// of Plan that needs it. [text.Spec.Source] is a pure function.
//
// Each package below knows those before it, and none knows the operations:
//
//   - text: specs, the language of kernels and their files;
//   - ops: the table of operations on single elements;
//   - user: users' functions;
//   - gemm: the tiles and panels of products of matrices;
//   - library: the vendors' libraries;
//   - loader: what compiles, keeps, tunes and runs kernels.
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
