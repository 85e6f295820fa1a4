//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
)

// ptr is an address of C's as one of a device.
func ptr(p unsafe.Pointer) device.Ptr { return device.Ptr(uintptr(p)) }

// address is the reverse. The detour keeps vet from taking it for arithmetic.
func address(p device.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

//export goCacheAlloc
func goCacheAlloc(h C.chorus_device, bytes C.int64_t, stream C.chorus_stream,
	out, view *unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && (out == nil || view == nil || bytes < 0) {
		err = refused("chorus_cache_alloc of %d bytes to %p, %p", int64(bytes), out, view)
	}
	if err != nil {
		return fail(err)
	}
	*out, *view = nil, nil
	s, err := streamOr(d, stream)
	if err != nil {
		return fail(err)
	}
	p, err := d.Alloc(int(bytes), s)
	if err != nil || p == 0 {
		return fail(err)
	}
	if k, ok := d.Runtime().Driver().(device.HostKernels); ok {
		if *view, err = k.View(p, int(bytes)); err != nil {
			_ = d.Dealloc(p) // which d.Alloc has just given
			return fail(err)
		}
	}
	*out = address(p)
	return C.CHORUS_OK
}

//export goCacheFree
func goCacheFree(h C.chorus_device, p unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil {
		err = d.Dealloc(ptr(p))
	}
	return fail(err)
}

//export goCacheUses
func goCacheUses(h C.chorus_device, p unsafe.Pointer, stream C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err != nil {
		return fail(err)
	}
	s, err := findStream(stream) // of this device or another one
	if err == nil {
		err = d.RecordStream(ptr(p), s.Stream)
	}
	return fail(err)
}

//export goAttributesOf
func goAttributesOf(h C.chorus_device, p unsafe.Pointer, out *C.chorus_attributes) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && out == nil {
		err = refused("chorus_attributes_of got NULL")
	}
	if err == nil {
		err = sized("chorus_attributes", out.size, unsafe.Sizeof(*out))
	}
	if err != nil {
		return fail(err)
	}
	at, err := d.Runtime().Driver().Attributes(ptr(p))
	if err != nil {
		return fail(err)
	}
	*out = C.chorus_attributes{size: out.size, kind: C.int32_t(at.Type), index: C.int32_t(at.Device),
		base: address(at.Base), bytes: C.int64_t(at.Bytes)}
	if at.Remote {
		out.remote = 1
	}
	return C.CHORUS_OK
}

//export goView
func goView(h C.chorus_device, p unsafe.Pointer, bytes C.int64_t, view *unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && (view == nil || bytes < 0) {
		err = refused("chorus_view of %d bytes to %p", int64(bytes), view)
	}
	if err != nil {
		return fail(err)
	}
	*view = nil
	k, ok := d.Runtime().Driver().(device.HostKernels)
	if !ok {
		return fail(device.Errorf(device.ErrUnsupported, d.Name(), "view", "this process can't touch the device's memory"))
	}
	*view, err = k.View(ptr(p), int(bytes))
	return fail(err)
}

//export goLibraryOpen
func goLibraryOpen(backend *C.char) (status C.chorus_status) {
	defer contain(&status)
	_, err := nccl.Load(text(backend, ""), "")
	if _, ok := errors.AsType[*config.Error](err); err != nil && !ok {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return fail(err)
}

// libraryDevice is a device with the number by which a vendor's allocator knows it.
func libraryDevice(driver *C.char, index C.int32_t) (*device.Device, error) {
	return device.Get(fmt.Sprintf("%s:%d", text(driver, ""), int(index)))
}

//export goLibraryAlloc
func goLibraryAlloc(family, driver *C.char, index C.int32_t, bytes C.int64_t) (p unsafe.Pointer) {
	var status C.chorus_status
	defer contain(&status)
	d, err := libraryDevice(driver, index)
	if err == nil && bytes <= 0 {
		err = refused("an allocation of %d bytes", int64(bytes))
	}
	var at uintptr
	if err == nil {
		at, err = nccl.Alloc(text(family, ""), d, int64(bytes))
	}
	if err != nil {
		fail(err)
		return nil
	}
	return address(device.Ptr(at))
}

//export goLibraryFree
func goLibraryFree(family, driver *C.char, index C.int32_t, p unsafe.Pointer) {
	var status C.chorus_status
	defer contain(&status)
	d, err := libraryDevice(driver, index)
	if err == nil && p != nil {
		err = nccl.Free(text(family, ""), d, uintptr(p))
	}
	fail(err)
}
