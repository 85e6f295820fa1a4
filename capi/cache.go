//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/observe/record"
)

// withCache calls f with a device's allocator.
func withCache(h C.chorus_device, f func(*cache.Cache) error) C.chorus_status {
	d, err := findDevice(h)
	if err != nil {
		return fail(err)
	}
	c, err := d.Allocator()
	if err == nil {
		err = f(c)
	}
	if errors.Is(err, cache.ErrInvalidArgument) || errors.Is(err, cache.ErrUnknownPool) {
		err = refused("%v", err)
	}
	return fail(err)
}

//export goDeviceSetFraction
func goDeviceSetFraction(h C.chorus_device, fraction C.double) (status C.chorus_status) {
	defer contain(&status)
	return withCache(h, func(c *cache.Cache) error { return c.SetFraction(float64(fraction)) })
}

//export goDeviceRecordHistory
func goDeviceRecordHistory(h C.chorus_device, n C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	return withCache(h, func(c *cache.Cache) error { return c.RecordHistory(int(n), false) })
}

func init() {
	cache.SetPlaces(func(n uintptr) (cache.Frame, bool) {
		f, is := record.SiteFrame(n)
		return cache.Frame{Name: f.Name, Filename: f.File, Line: f.Line}, is
	})
}

//export goCacheCame
func goCacheCame(h C.chorus_device, p unsafe.Pointer, sites *C.uint32_t, n C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if n < 0 || n > 0 && sites == nil {
		return fail(refused("chorus_cache_came: %d sites at %p", int32(n), sites))
	}
	from := make([]uintptr, n)
	for i, site := range slice(sites, n) {
		from[i] = uintptr(site)
	}
	return withCache(h, func(c *cache.Cache) error {
		c.Came(uintptr(p), from)
		return nil
	})
}

//export goDeviceSnapshot
func goDeviceSnapshot(h C.chorus_device, path *C.char) (status C.chorus_status) {
	defer contain(&status)
	if path == nil {
		return fail(refused("chorus_device_snapshot got NULL"))
	}
	return withCache(h, func(c *cache.Cache) error {
		file, err := os.Create(C.GoString(path))
		if err != nil {
			return refused("%v", err)
		}
		return errors.Join(c.Snapshot().Write(file), file.Close())
	})
}

//export goPoolNew
func goPoolNew(out *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	if out == nil {
		return fail(refused("chorus_pool_new got NULL"))
	}
	for i, v := range cache.NewPoolID() {
		slice(out, 2)[i] = C.uint64_t(v)
	}
	return C.CHORUS_OK
}

//export goPoolOf
func goPoolOf(name *C.char, h C.chorus_device, out *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	if out == nil {
		return fail(refused("chorus_pool_of got NULL"))
	}
	d, err := findDevice(h)
	if err != nil {
		return fail(err)
	}
	id, err := comm.PoolOf(text(name, ""), d)
	if err != nil {
		return fail(err)
	}
	for i, v := range id {
		slice(out, 2)[i] = C.uint64_t(v)
	}
	return C.CHORUS_OK
}

// poolAt is the pool whose name lies at an address.
func poolAt(p *C.uint64_t) cache.PoolID {
	return cache.PoolID{uint64(slice(p, 2)[0]), uint64(slice(p, 2)[1])}
}

//export goPoolBegin
func goPoolBegin(h C.chorus_device, pool *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	if pool == nil {
		return fail(refused("chorus_pool_begin got NULL"))
	}
	thread := unix.Gettid() // of the host, which stays with this goroutine while it's in here
	return withCache(h, func(c *cache.Cache) error {
		return c.BeginPool(poolAt(pool), func(cache.Stream) bool { return unix.Gettid() == thread }, false)
	})
}

//export goPoolEnd
func goPoolEnd(h C.chorus_device, pool *C.uint64_t, release C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if pool == nil {
		return fail(refused("a memory pool is wanted, not NULL"))
	}
	return withCache(h, func(c *cache.Cache) error {
		if release != 0 {
			return c.ReleasePool(poolAt(pool))
		}
		return c.EndPool(poolAt(pool))
	})
}

// ---- memory of other processes ----

func ipcOf(d *device.Device) (device.IPC, error) {
	if ipc, ok := d.Runtime().Driver().(device.IPC); ok {
		return ipc, nil
	}
	return nil, device.Errorf(device.ErrUnsupported, d.Name(), "share", "other processes can't open the device's memory")
}

//export goMemoryHandle
func goMemoryHandle(h C.chorus_device, p, out unsafe.Pointer, room C.int64_t,
	n, offset *C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && (n == nil || offset == nil || room < 0 || out == nil && room > 0) {
		err = refused("chorus_memory_handle: room for %d bytes at %p", int64(room), out)
	}
	if err != nil {
		return fail(err)
	}
	ipc, err := ipcOf(d)
	if err != nil {
		return fail(err)
	}
	at, err := d.Runtime().Driver().Attributes(ptr(p))
	if err != nil {
		return fail(err)
	}
	b, err := ipc.IPCHandle(at.Base)
	if err != nil {
		return fail(err)
	}
	*n, *offset = C.int64_t(len(b)), C.int64_t(ptr(p)-at.Base)
	if int(room) < len(b) {
		return fail(refused("chorus_memory_handle: the handle has %d bytes, there is room for %d", len(b), int64(room)))
	}
	copy(unsafe.Slice((*byte)(out), len(b)), b)
	return C.CHORUS_OK
}

//export goMemoryOpen
func goMemoryOpen(h C.chorus_device, handle unsafe.Pointer, n C.int64_t, out *unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && (handle == nil || n < 0 || n > 1<<20 || out == nil) {
		err = refused("chorus_memory_open of %d bytes at %p to %p", int64(n), handle, out)
	}
	if err != nil {
		return fail(err)
	}
	*out = nil
	ipc, err := ipcOf(d)
	if err != nil {
		return fail(err)
	}
	p, err := ipc.IPCOpen(d.Index(), unsafe.Slice((*byte)(handle), int(n)))
	*out = address(p)
	return fail(err)
}

//export goMemoryClose
func goMemoryClose(h C.chorus_device, p unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err != nil {
		return fail(err)
	}
	ipc, err := ipcOf(d)
	if err == nil {
		err = ipc.IPCClose(ptr(p))
	}
	return fail(err)
}
