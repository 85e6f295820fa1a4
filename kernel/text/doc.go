// Package text has the language of kernels. A [Spec] describes a kernel, and its family's generator writes the text
// with a [Writer]: C99 with the words of dialect, which CUDA's NVRTC, HIP's hiprtc and any OpenCL driver compile. A
// [Source] is that text, and [Source.For] the whole of it for a [Target].
//
// Kernels whose C doesn't depend on a number of operands are files here. A generator writes what a spec says as
// definitions, such as the types of elements and how they become numbers, and then the file, which chooses by them. The
// text of a loaded kernel has both, so that they are part of the key of the cache on disk, and errors show its lines.
package text
