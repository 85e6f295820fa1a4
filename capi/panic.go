//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
)

var poisoned sync.Once

// contain ends a panic before it reaches C: it says once what happened, and makes
// every later call fail with it. Locks that the panic left behind don't matter then.
func contain(status *C.chorus_status) {
	r := recover()
	if r == nil {
		return
	}
	*status = poison(r)
}

func poison(r any) C.chorus_status {
	poisoned.Do(func() {
		stack := debug.Stack()
		fmt.Fprintf(os.Stderr, "chorus: panic: %v\n%s", r, stack)
		f := factsOf(fmt.Errorf("chorus: a bug in the library was caught: %v; it can't be used any more in this process, and standard error has the stack", r), C.CHORUS_PANICKED)
		f.detail = fmt.Sprint(r)
		C.shim_poison(f.toC())
	})
	C.shim_refuse()
	return C.CHORUS_PANICKED
}
