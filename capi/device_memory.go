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

// tensorAt is n elements at p: on the communicator's device, if they can be, or else where the drivers say.
func (m *communicator) tensorAt(dt dtype.DType, p unsafe.Pointer, n int) (*tensor.Tensor, error) {
	if s := m.Stream(); s != nil && n > 0 && !s.Device().Properties().HostAccess {
		if t, err := new(tensor.Header).SetOn(s.Device(), dt, ptr(p), n); err == nil {
			return t, nil
		}
	}
	return anywhere().tensor(new(tensor.Header), dt, p, n)
}

// location is where tensors are: on the host, or on a device; or where the drivers say, if they aren't there.
type location struct {
	dev *device.Device // nil: the host
	ask bool
}

// anywhere is where the drivers say.
func anywhere() location { return location{ask: device.HasSeparateMemory()} }

// locate finds out what an operation says of its tensors' place; see chorus_op.
func (m *communicator) locate(where C.chorus_device) (at location, err error) {
	switch where {
	case C.CHORUS_HOST:
	case C.CHORUS_BOUND:
		if s := m.Stream(); s != nil {
			at = location{s.Device(), true}
		}
	case 0:
		at = anywhere()
	default:
		at.dev, err = findDevice(where)
	}
	return at, err
}

// tensor is n elements at p, by the header.
func (at location) tensor(header *tensor.Header, dt dtype.DType, p unsafe.Pointer, n int) (t *tensor.Tensor,
	err error) {
	if at.dev != nil && !at.dev.Properties().HostAccess {
		t, err = header.SetOn(at.dev, dt, ptr(p), n)
		if err == nil {
			return t, nil
		}
	} else if t, err = header.Set(dt, p, n); err != nil || n == 0 {
		return t, err
	} else if _, _, mapped := t.Shared(); mapped { // by other processes, as only the host's memory can be
		return t, nil
	}
	if at.ask {
		if d, wrong := device.Of(ptr(p)); wrong != nil {
			return nil, wrong
		} else if d != nil {
			return header.SetOn(d, dt, ptr(p), n)
		}
	}
	return t, err
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
