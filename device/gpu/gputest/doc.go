// Package gputest is a stand-in for the libraries of GPUs in Go: it fills the table of package device/gpu, so that its
// driver runs without a GPU, on emulated devices.
//
//	sim, err := gputest.New(gputest.Options{Name: "cuda"})
//	lib, err := gpu.Supply("cuda", "stand-in", sim.Table())
//	driver, err := gpu.New(lib)
//
// Calls have the library's preconditions and effects. A call needs a current context or device of its thread. Freeing
// memory waits for all work. Functions of the host are called one after another on one thread, so that one that blocks
// holds up all others. A call that is unsafe in a capture ends captures of other threads in mode global, unless its
// thread is in mode relaxed ([Library.BeginCapture]).
//
// [CompileHIP] builds libraries for tests of which copy of HIP a process uses: each has streams of its own, and nothing
// else.
//
// Its modules are those of emulated devices, as images ([Image]) or as sources for its compiler.
//
// Invariants: it shows that a driver keeps the library's documented rules, and nothing else about GPUs.
package gputest
