//go:build cgo

// Package capi is the C ABI of Chorus, whose functions chorus.h declares: a
// program that imports it, built with -buildmode=c-shared, is libchorus.so.
//
//	sh capi/build.sh libchorus.so
//
// Command capi/libchorus is that program. One from outside imports the drivers,
// fabrics or backends of others as well:
//
//	import (
//		_ "example.com/vendor/driver"
//		_ "github.com/chorus-comms/chorus/capi"
//	)
//
//	PACKAGE=./library sh capi/build.sh libvendor.so
//
// A call goes through two layers. The first, shim.c, exports it, refuses it in a forked child and after a panic,
// releases the host's lock if the call may wait, and calls the Go function of the same name, such as goSubmit. The Go
// function turns numbers into values, calls package comm, and turns the error into a status and a C struct.
//
// Invariants:
//
//   - C keeps no Go pointer: handles are numbers, and strings and structs that a caller
//     may keep are allocated with malloc.
//   - Go keeps no pointer to a caller's struct after a call; only to elements of tensors.
//   - A synchronous operation on the host runs on the caller's thread and allocates nothing.
//   - Every exported Go function defers contain, so that no panic crosses into C.
package capi
