//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// tensorAt is n elements at p, on a device or on the host.
func tensorAt(dt dtype.DType, p unsafe.Pointer, n int) (*tensor.Tensor, error) {
	return at(new(tensor.Header), dt, p, n, 0)
}

// at is n elements at p: the header's tensor if they are on the host, else one of a device's. where is as in chorus_op.
func at(header *tensor.Header, dt dtype.DType, p unsafe.Pointer, n int, where C.chorus_device) (*tensor.Tensor, error) {
	if where == C.CHORUS_HOST || where == 0 && !device.Apart() {
		return header.Set(dt, p, n)
	}
	return located(header, dt, p, n, where)
}

// located is at where there are devices: if it's not said, their drivers are asked, unless other processes can map the
// memory, which only the host's can be.
func located(header *tensor.Header, dt dtype.DType, p unsafe.Pointer, n int,
	where C.chorus_device) (t *tensor.Tensor, err error) {
	var d *device.Device
	if where != 0 {
		if d, err = findDevice(where); err == nil && d.Properties().HostAccess {
			return header.Set(dt, p, n)
		}
	} else if t, err = header.Set(dt, p, n); err == nil && n > 0 {
		if _, _, mapped := t.Shared(); !mapped {
			d, err = device.Of(ptr(p))
		}
	}
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return t, nil
	}
	return tensor.FromDevice(dt, d, ptr(p), n)
}

// pins is what chorus_pin has given out, by address.
var pins = struct {
	sync.Mutex
	at map[uintptr]*device.Pinned
}{at: map[uintptr]*device.Pinned{}}

//export goPin
func goPin(h C.chorus_device, bytes C.int64_t, out *unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && (out == nil || bytes < 0) {
		err = refused("chorus_pin of %d bytes to %p", int64(bytes), out)
	}
	if err != nil {
		return fail(err)
	}
	*out = nil
	b, err := d.Runtime().Pin(max(1, int(bytes)))
	if err != nil {
		return fail(err)
	}
	p := unsafe.SliceData(b.Bytes())
	pins.Lock()
	pins.at[uintptr(unsafe.Pointer(p))] = b
	pins.Unlock()
	*out = unsafe.Pointer(p)
	return C.CHORUS_OK
}

//export goUnpin
func goUnpin(p unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	if p == nil {
		return C.CHORUS_OK
	}
	pins.Lock()
	b := pins.at[uintptr(p)]
	delete(pins.at, uintptr(p))
	pins.Unlock()
	if b == nil {
		return fail(refused("chorus_unpin of %p, which chorus_pin did not give or which was freed before", p))
	}
	return fail(b.Free())
}
