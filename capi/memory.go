//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/tensor"
)

// blocks are what chorus_alloc has given out, by address.
var blocks = struct {
	sync.Mutex
	at map[uintptr]*hostmem.Block
}{at: map[uintptr]*hostmem.Block{}}

//export goAlloc
func goAlloc(bytes C.int64_t, zero C.int32_t, out *unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	if out == nil {
		return fail(refused("chorus_alloc got NULL"))
	}
	*out = nil
	if bytes < 0 {
		return fail(refused("chorus_alloc of %d bytes", int64(bytes)))
	}
	alloc := hostmem.Alloc
	if zero != 0 {
		alloc = hostmem.AllocZero
	}
	b, err := alloc(max(1, int(bytes))) // so that every address is freed once
	if err != nil {
		return fail(err)
	}
	blocks.Lock()
	blocks.at[uintptr(b.Pointer())] = b
	blocks.Unlock()
	*out = b.Pointer()
	return C.CHORUS_OK
}

//export goFree
func goFree(p unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	if p == nil {
		return C.CHORUS_OK
	}
	blocks.Lock()
	b := blocks.at[uintptr(p)]
	delete(blocks.at, uintptr(p))
	blocks.Unlock()
	if b == nil {
		return fail(refused("chorus_free of %p, which chorus_alloc did not give or which was freed before", p))
	}
	b.Free()
	return C.CHORUS_OK
}

//export goIsShared
func goIsShared(p unsafe.Pointer, bytes C.int64_t) C.int32_t {
	if _, _, ok := hostmem.Find(p, int(bytes)); ok {
		return 1
	}
	return 0
}

//export goRegister
func goRegister(h C.chorus_comm, p unsafe.Pointer, bytes C.int64_t, on C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err != nil {
		return fail(err)
	}
	t, err := m.tensorAt(dtype.Uint8, p, int(bytes))
	switch {
	case err != nil:
		err = refused("%v", err)
	case on != 0:
		err = m.Register(t)
	default:
		err = m.Deregister(t)
	}
	return fail(err)
}

//export goRegisterSymmetric
func goRegisterSymmetric(h C.chorus_comm, p *unsafe.Pointer, bytes *C.int64_t, n, on, checked C.int32_t) (
	status C.chorus_status) {
	defer contain(&status)
	m, err := find(h)
	if err == nil && (n < 0 || n > 0 && (p == nil || bytes == nil)) {
		err = refused("%d symmetric blocks at %p, of sizes at %p", n, p, bytes)
	}
	if err != nil {
		return fail(err)
	}
	tensors := make([]*tensor.Tensor, n)
	sizes := unsafe.Slice(bytes, n)
	for i, at := range unsafe.Slice(p, n) {
		if tensors[i], err = m.tensorAt(dtype.Uint8, at, int(sizes[i])); err != nil {
			return fail(refused("symmetric block %d: %v", i, err))
		}
	}
	f := m.RegisterSymmetric
	if on == 0 {
		f = m.DeregisterSymmetric
	}
	return fail(running(checked, func(ctx context.Context) error { return f(ctx, tensors...) }, nil))
}
