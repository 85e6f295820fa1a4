// Package abi is what the libraries of NVIDIA's and AMD's drivers look like: their functions, results, constants, and
// where the libraries are.
//
//	var t abi.Table // one for both: its tags name CUDA's function and HIP's
//	caps, err := library.Resolve(&t)
//	r := t.MemAlloc(&p, 1<<20) // cuMemAlloc_v2 or hipMalloc
//
// Names and values are those of cuda.h (13.0) and hip_runtime_api.h (7.1); a test compares them with the headers where
// there are any. The package loads nothing and links nothing.
package abi
