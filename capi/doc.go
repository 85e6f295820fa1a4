//go:build cgo

// Command capi is the C ABI of Chorus: built with -buildmode=c-shared it is
// libchorus.so, whose functions chorus.h declares.
//
//	sh capi/build.sh libchorus.so
//
// A call goes through two layers. shim.c exports it, refuses it in a forked child
// and after a panic, gives the host's lock back if the call may wait, and calls the
// Go function of the same name, such as goSubmit. That one turns numbers into
// values, calls package comm, and turns the error into a status and a C struct.
//
// Invariants:
//
//   - C keeps no Go pointer: handles are numbers, and strings and structs that a caller
//     may keep are allocated with malloc.
//   - Go keeps no pointer to a caller's struct after a call; only to elements of tensors.
//   - A synchronous operation on the host runs on the caller's thread and allocates nothing.
//   - Every exported Go function defers contain, so that no panic crosses into C.
package main

// main is not called in a shared library.
func main() {}
