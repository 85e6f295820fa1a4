//go:build cgo

package capi

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// hook is what a chorus_hook stands for.
type hook struct {
	*comm.Hook
}

func giveHook(h *comm.Hook, out *C.chorus_hook) error {
	n := hooks.put(&hook{h})
	if n == 0 {
		h.Remove()
		return errors.New("chorus: too many hooks")
	}
	*out = C.chorus_hook(n)
	return nil
}

//export goOnAbort
func goOnAbort(h C.chorus_comm, f C.chorus_abort_fn, user unsafe.Pointer, out *C.chorus_hook) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil && (f == nil || out == nil) {
		err = refused("chorus_on_abort got NULL")
	}
	if err != nil {
		return fail(err)
	}
	return fail(giveHook(m.RegisterAbortHook(func(err error) { tell(C.chorus_done_fn(f), user, err) }), out))
}

// algorithms are the C strings of algorithms' names, which are few and never freed.
var algorithms sync.Map

func algorithm(name string) *C.char {
	if s, ok := algorithms.Load(name); ok {
		return s.(*C.char)
	}
	s, _ := algorithms.LoadOrStore(name, C.CString(name))
	return s.(*C.char)
}

//export goOnCompletion
func goOnCompletion(h C.chorus_comm, f C.chorus_completion_fn, user unsafe.Pointer,
	out *C.chorus_hook) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil && (f == nil || out == nil) {
		err = refused("chorus_on_completion got NULL")
	}
	if err != nil {
		return fail(err)
	}
	return fail(giveHook(m.RegisterCompletionHook(func(info comm.OpInfo, err error) {
		c := C.chorus_completion{size: C.uint32_t(unsafe.Sizeof(C.chorus_completion{})), status: statusOf(err),
			kind: C.int32_t(info.Kind),
			root: C.int32_t(info.Root), peer: C.int32_t(info.Peer), tag: C.int32_t(info.Tag),
			reduction: C.int32_t(info.Reduce.Kind),
			id:        C.uint64_t(info.ID), seq: C.uint64_t(info.Seq), algorithm: algorithm(info.Algorithm)}
		if info.Async {
			c.async = 1
		}
		tensors := append(append([]*tensor.Tensor{info.In, info.Out}, info.Ins...), info.Outs...)
		for _, t := range tensors {
			if t != nil && c.dtype == 0 {
				c.dtype, c.bytes = C.int32_t(t.DType()), C.int64_t(t.NBytes())
			}
		}
		C.shim_completion(f, user, &c)
	}), out))
}

//export goHookRemove
func goHookRemove(h C.chorus_hook) (status C.chorus_status) {
	defer contain(&status)
	k := hooks.take(uint64(h))
	if k == nil {
		return fail(refused("%#x is no hook; it may have been removed", uint64(h)))
	}
	k.Remove()
	return C.CHORUS_OK
}
