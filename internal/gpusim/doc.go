// Package gpusim is a stand-in for the libraries of GPUs in Go: it fills the table of package device/gpu, so that its
// driver runs without a GPU, on emulated devices.
//
//	sim, err := gpusim.New(gpusim.Options{Name: "cuda"})
//	lib, err := gpu.Supply("cuda", "stand-in", sim.Table())
//	driver, err := gpu.New(lib)
//
// What a call needs of the library's state it needs here: a current context or device of its thread, that memory isn't
// freed under work but by waiting for all of it, that functions of the host are called on one thread after another, so
// that one that blocks holds up all others, and that a call which is unsafe in a capture ends the captures of others in
// mode global, unless its thread is in mode relaxed ([Library.BeginCapture]).
//
// [CompileHIP] makes files for tests of which copy of HIP a process takes: each has its own streams, and nothing else.
//
// Its modules are those of emulated devices, as images ([Image]) or as sources for its compiler.
//
// Invariants: it shows that a driver keeps the library's rules as they're documented, and nothing of what a GPU does
// beside.
package gpusim
