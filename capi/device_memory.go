//go:build cgo

package main

// #include "shim.h"
import "C"

import (
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// devmem is the memory of devices that chorus_device_alloc has given out, in the order of its addresses.
var devmem struct {
	sync.RWMutex
	n      atomic.Int64 // blocks, so that programs without devices don't look
	bases  []uintptr
	blocks []*tensor.Tensor // of bytes
}

// addressOf is a tensor's address as a number.
func addressOf(t *tensor.Tensor) uintptr { return uintptr(t.Pointer()) }

func addBlock(t *tensor.Tensor) {
	devmem.Lock()
	defer devmem.Unlock()
	p := addressOf(t)
	i := sort.Search(len(devmem.bases), func(i int) bool { return devmem.bases[i] >= p })
	devmem.bases = slices.Insert(devmem.bases, i, p)
	devmem.blocks = slices.Insert(devmem.blocks, i, t)
	devmem.n.Add(1)
}

// takeBlock removes the block that begins at p; nil if none does.
func takeBlock(p uintptr) *tensor.Tensor {
	devmem.Lock()
	defer devmem.Unlock()
	i, ok := slices.BinarySearch(devmem.bases, p)
	if !ok {
		return nil
	}
	t := devmem.blocks[i]
	devmem.bases = slices.Delete(devmem.bases, i, i+1)
	devmem.blocks = slices.Delete(devmem.blocks, i, i+1)
	devmem.n.Add(-1)
	return t
}

// blockAt returns the block that p points into, and how far; nil if it's none of a device's.
func blockAt(p uintptr) (*tensor.Tensor, int) {
	if devmem.n.Load() == 0 {
		return nil, 0
	}
	devmem.RLock()
	defer devmem.RUnlock()
	i := sort.Search(len(devmem.bases), func(i int) bool { return devmem.bases[i] > p }) - 1
	if i < 0 {
		return nil, 0
	}
	t, off := devmem.blocks[i], int(p-devmem.bases[i])
	if off >= t.NBytes() {
		return nil, 0
	}
	return t, off
}

// bytesAt is the bytes at p of a device's block; nil if p is the host's.
func bytesAt(p unsafe.Pointer, bytes int) (*tensor.Tensor, error) {
	block, off := blockAt(uintptr(p))
	if block == nil {
		return nil, nil
	}
	if bytes < 0 || bytes > block.NBytes()-off {
		return nil, refused("%d bytes at %p leave their allocation of %d bytes on %s", bytes, p, block.NBytes(),
			block.Device())
	}
	return block.Narrow(0, off, bytes)
}

// tensorAt is n elements at p, on a device or on the host.
func tensorAt(dt dtype.DType, p unsafe.Pointer, n int) (*tensor.Tensor, error) {
	return at(new(tensor.Slot), dt, p, n, 0)
}

// at is n elements at p: the slot's tensor if they are on the host, else one of a device's. where is as in chorus_op.
func at(slot *tensor.Slot, dt dtype.DType, p unsafe.Pointer, n int, where C.chorus_device) (*tensor.Tensor, error) {
	if where == C.CHORUS_HOST || where == 0 && !device.Apart() {
		return slot.Set(dt, p, n)
	}
	return located(slot, dt, p, n, where)
}

// located is at where there are devices: of memory that isn't chorus_device_alloc's their drivers are asked, unless
// other processes can map it, which only the host's can be.
func located(slot *tensor.Slot, dt dtype.DType, p unsafe.Pointer, n int,
	where C.chorus_device) (t *tensor.Tensor, err error) {
	if n > 0 {
		if t, err = bytesAt(p, n*dt.Size()); t != nil && err == nil {
			t, err = t.As(dt, n)
		}
		if t != nil || err != nil {
			return t, err
		}
	}
	var d *device.Device
	if where != 0 {
		if d, err = findDevice(where); err == nil && d.Properties().HostAccess {
			return slot.Set(dt, p, n)
		}
	} else if t, err = slot.Set(dt, p, n); err == nil && n > 0 {
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

//export goDeviceAlloc
func goDeviceAlloc(h C.chorus_device, bytes C.int64_t, stream C.chorus_stream, out *unsafe.Pointer,
	checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && (out == nil || bytes < 0) {
		err = refused("chorus_device_alloc of %d bytes to %p", int64(bytes), out)
	}
	if err != nil {
		return fail(err)
	}
	*out = nil
	s, err := streamOr(d, stream)
	if err != nil {
		return fail(err)
	}
	t, err := tensor.EmptyOn(device.WithStream(context.Background(), s), d, dtype.Uint8, max(1, int(bytes)))
	if err != nil {
		return fail(err)
	}
	addBlock(t)
	*out = t.Pointer()
	return C.CHORUS_OK
}

//export goDeviceFree
func goDeviceFree(p unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	if p == nil {
		return C.CHORUS_OK
	}
	t := takeBlock(uintptr(p))
	if t == nil {
		return fail(refused("chorus_device_free of %p, which chorus_device_alloc did not give or which was freed before", p))
	}
	t.Free()
	return C.CHORUS_OK
}

//export goMemoryDevice
func goMemoryDevice(p unsafe.Pointer, out *C.chorus_device) (status C.chorus_status) {
	defer contain(&status)
	if out == nil {
		return fail(refused("chorus_memory_device got NULL"))
	}
	*out = 0
	if t, _ := blockAt(uintptr(p)); t != nil && !t.OnHost() {
		*out = C.chorus_device(handleOf(t.On()))
	}
	return C.CHORUS_OK
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
