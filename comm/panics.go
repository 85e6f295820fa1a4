package comm

import (
	"errors"
	"runtime"
)

var errPanicked = errors.New("its program panicked")

// panicking reports whether the calling goroutine runs deferred functions because of a panic.
func panicking() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function == "runtime.gopanic" {
			return true
		}
		if !more {
			return false
		}
	}
}
