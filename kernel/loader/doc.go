// Package loader compiles kernels and runs them. A [Loader] of a device keeps its loaded kernels, and with a [Disk]
// their compiled form for other processes. It fits a [Call] to the device: a library does it, or a kernel in the form
// for a GPU or a processor, which [Tuned] chooses for products of matrices.
package loader
