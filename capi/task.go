//go:build cgo

package capi

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
)

// task is a function of C's that a stream runs.
type task struct {
	f     C.chorus_task_fn
	over  C.chorus_over_fn // NULL, or told once that f will not be called any more
	user  unsafe.Pointer
	ended sync.Once
}

func (t *task) end() {
	t.ended.Do(func() {
		if t.over != nil {
			C.shim_over(t.over, t.user)
		}
	})
}

// run calls the function, and turns what it says into an error.
func (t *task) run(views []unsafe.Pointer) error {
	var reply C.chorus_reply
	var p *unsafe.Pointer
	if len(views) > 0 {
		p = &views[0]
	}
	code := C.shim_task(t.f, t.user, p, &reply)
	defer C.free(reply.data)
	defer C.free(unsafe.Pointer(reply.error))
	switch {
	case code == C.CHORUS_OK:
		return nil
	case reply.error != nil:
		return errors.New(C.GoString(reply.error))
	}
	return fmt.Errorf("it returned %d", int(code))
}

//export goStreamTask
func goStreamTask(h C.chorus_stream, name *C.char, operands *C.chorus_span, n C.int32_t, f C.chorus_task_fn,
	over C.chorus_over_fn, user unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && f == nil {
		err = refused("chorus_stream_task got NULL")
	}
	if err == nil {
		err = counted("operands", operands, n, C.CHORUS_MAX_BATCH)
	}
	if err != nil {
		return fail(err)
	}
	spans := make([]device.Span, 0, n)
	for _, o := range slice(operands, n) {
		spans = append(spans, device.Span{Ptr: ptr(o.data), Bytes: int(o.bytes)})
	}
	t := &task{f: f, over: over, user: user}
	// The holder of the function, a graph or a stream that leaves it out, may drop it without a call. Then it's over as
	// well.
	held := new([16]byte) // larger than what the allocator packs together
	runtime.AddCleanup(held, (*task).end, t)
	captured := s.Capturing()
	run := func(views []unsafe.Pointer) error {
		defer runtime.KeepAlive(held)
		if !captured {
			defer t.end()
		}
		return t.run(views)
	}
	if what := text(name, "task"); n == 0 {
		err = s.HostFunc(what, func() error { return run(nil) })
	} else {
		err = s.Launch(what, spans, run)
	}
	if err != nil {
		t.ended.Do(func() {}) // C keeps what it has, as nothing was enqueued
	}
	runtime.KeepAlive(held)
	return fail(err)
}
