//go:build cgo && chorus_debug

package capi

// #include "shim.h"
import "C"

import "context"

// chorus_debug_panic is there in test builds only: it panics on the caller's thread, or on
// a goroutine that works for it.
//
//export chorus_debug_panic
func chorus_debug_panic(elsewhere C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return fail(running(elsewhere, func(context.Context) error { panic("asked to") }, nil))
}
