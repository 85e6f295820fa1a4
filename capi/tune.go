//go:build cgo

package capi

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/kernel/loader"
)

//export goTuneSet
func goTuneSet(enabled, tuning, milliseconds, iterations C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if milliseconds < 0 || iterations < 0 {
		return fail(refused("chorus_tune_set: %d ms, %d iterations", int(milliseconds), int(iterations)))
	}
	loader.Tuned.Set(loader.Tuning{Enabled: enabled != 0, Tune: tuning != 0, Iterations: int(iterations),
		Duration: time.Duration(milliseconds) * time.Millisecond})
	return C.CHORUS_OK
}

//export goTuneAdd
func goTuneAdd(line *C.char) (status C.chorus_status) {
	defer contain(&status)
	if line == nil {
		return fail(refused("chorus_tune_add got NULL"))
	}
	if err := loader.Tuned.Add(C.GoString(line)); err != nil {
		return fail(refused("%v", err))
	}
	return C.CHORUS_OK
}

// tuneText is the last text that a caller has got.
var tuneText struct {
	sync.Mutex
	text *C.char
}

//export goTuneResults
func goTuneResults(text **C.char) (status C.chorus_status) {
	defer contain(&status)
	if text == nil {
		return fail(refused("chorus_tune_results got NULL"))
	}
	tuneText.Lock()
	defer tuneText.Unlock()
	C.free(unsafe.Pointer(tuneText.text))
	tuneText.text = C.CString(strings.Join(loader.Tuned.Results(), "\n"))
	*text = tuneText.text
	return C.CHORUS_OK
}
