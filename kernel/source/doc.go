// Package source runs kernels whose text a caller has written in the language of package text: those that torch.compile
// generates. A [Kernel] is such a text, and [Kernel.Call] one run of it.
//
// A text calls operations of the table, package ops, as functions of a type: f32_gelu(x) is gelu of float32, computed as
// the operator's own kernel does. It may call functions of the dialect likewise: t_f32_max(x, y). The package writes
// those that a text names.
package source
