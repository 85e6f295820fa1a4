//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	_ "github.com/chorus-comms/chorus/device/gpu"
	"github.com/chorus-comms/chorus/device/opencl"
)

var (
	devices = table[device.Device]{kind: deviceHandles}
	opened  struct { // the one handle that each device has
		sync.Mutex
		handles map[*device.Device]uint64
	}
)

// handleOf returns a device's handle, making it when it's first needed.
func handleOf(d *device.Device) uint64 {
	opened.Lock()
	defer opened.Unlock()
	h := opened.handles[d]
	if h == 0 {
		if opened.handles == nil {
			opened.handles = map[*device.Device]uint64{}
		}
		h = devices.put(d)
		opened.handles[d] = h
	}
	return h
}

func findDevice(h C.chorus_device) (*device.Device, error) {
	if d := devices.get(uint64(h)); d != nil {
		return d, nil
	}
	return nil, refused("%#x is no device", uint64(h))
}

// over is a context that has ended, with which a wait on a device only looks.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// settled is within for a wait that changes nothing, which is mostly for what is done already.
func settled(ns C.int64_t, checked C.int32_t, f func(ctx context.Context) error) error {
	if err := f(over); !errors.Is(err, device.ErrCanceled) {
		return err
	}
	return within(ns, checked, f)
}

// within runs a wait on a device: f's context ends after ns, or after the timeout of the configuration if ns is 0, and
// when the host gives up.
func within(ns C.int64_t, checked C.int32_t, f func(ctx context.Context) error) error {
	most := timeout(ns)
	if ns <= 0 {
		cfg, err := config.Load(nil)
		if err != nil {
			return refused("%v", err)
		}
		most = cfg.Timeout
	}
	return running(checked, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return f(ctx)
	}, nil)
}

// commandWords is how many words a command may have.
const commandWords = 64

//export goCompileApart
func goCompileApart(command **C.char, n C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if n < 1 || n > commandWords || command == nil {
		return fail(refused("chorus_compile_apart got a command of %d words", int(n)))
	}
	words := make([]string, n)
	for i, w := range slice(command, n) {
		if w == nil {
			return fail(refused("chorus_compile_apart got NULL as word %d", i))
		}
		words[i] = C.GoString(w)
	}
	opencl.CompileApart(words...)
	return C.CHORUS_OK
}

//export goDeviceCount
func goDeviceCount(name *C.char, n *C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if name == nil || n == nil {
		return fail(refused("chorus_device_count got NULL"))
	}
	*n = 0
	rt, err := device.Load(C.GoString(name)) // a type that is named is loaded, whether autoload is on or not
	if err == nil {
		err = rt.Err()
	}
	if err == nil {
		*n = C.int32_t(rt.Count())
	}
	return fail(err)
}

//export goDeviceOpen
func goDeviceOpen(name *C.char, out *C.chorus_device) (status C.chorus_status) {
	defer contain(&status)
	if name == nil || out == nil {
		return fail(refused("chorus_device_open got NULL"))
	}
	*out = 0
	d, err := device.Get(C.GoString(name))
	if err == nil {
		*out = C.chorus_device(handleOf(d))
	}
	return fail(err)
}

//export goDeviceGet
func goDeviceGet(h C.chorus_device, info *C.chorus_device_info) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && info == nil {
		err = refused("chorus_device_get got NULL")
	}
	if err == nil {
		err = sized("chorus_device_info", info.size, unsafe.Offsetof(info.units)) // of version 1.0
	}
	if err != nil {
		return fail(err)
	}
	free, total, err := d.MemInfo()
	if err != nil {
		return fail(err)
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return fail(refused("%v", err))
	}
	p := d.Properties()
	all := C.chorus_device_info{size: info.size, index: C.int32_t(d.Index()), priorities: C.int32_t(p.PriorityLevels),
		free_bytes: C.int64_t(free), total_bytes: C.int64_t(total), model: interned(p.Name),
		library: interned(p.Library), units: C.int32_t(p.Units), major: C.int32_t(p.Major), minor: C.int32_t(p.Minor)}
	u := p.UUID
	all.uuid = interned(fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]))
	if p.HostAccess {
		all.host_access = 1
	}
	if _, ok := d.Runtime().Driver().(device.HostKernels); ok {
		all.views = 1
	}
	if cfg.DeviceBlocking {
		all.blocking = 1
	}
	n := min(uintptr(info.size), unsafe.Sizeof(all)) // an older caller's has fewer fields
	copy(unsafe.Slice((*byte)(unsafe.Pointer(info)), n), unsafe.Slice((*byte)(unsafe.Pointer(&all)), n))
	return C.CHORUS_OK
}

//export goDeviceSynchronize
func goDeviceSynchronize(h C.chorus_device, ns C.int64_t, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err != nil {
		return fail(err)
	}
	return fail(settled(ns, checked, func(ctx context.Context) error {
		if err := d.Synchronize(ctx); err != nil {
			return err
		}
		return settle(ctx, d)
	}))
}

//export goDeviceEmptyCache
func goDeviceEmptyCache(h C.chorus_device) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil {
		err = d.EmptyCache()
	}
	return fail(err)
}

//export goDeviceEmptyHostCache
func goDeviceEmptyHostCache(h C.chorus_device, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil {
		err = d.Runtime().EmptyPinnedCache()
	}
	return fail(err)
}

//export goDeviceMemoryStats
func goDeviceMemoryStats(h C.chorus_device, out *C.chorus_figure, room C.int32_t,
	n *C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return figures(h, func(d *device.Device) map[string]int64 { return d.MemoryStats().Map() }, out, room, n)
}

//export goDeviceHostStats
func goDeviceHostStats(h C.chorus_device, out *C.chorus_figure, room C.int32_t, n *C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return figures(h, func(d *device.Device) map[string]int64 { return d.Runtime().PinnedStats().Map() }, out, room, n)
}

// figures writes a device's figures by their names, as many as there is room for.
func figures(h C.chorus_device, of func(*device.Device) map[string]int64, out *C.chorus_figure, room C.int32_t,
	n *C.int32_t) C.chorus_status {
	d, err := findDevice(h)
	if err == nil && (n == nil || room < 0 || room > 0 && out == nil) {
		err = refused("figures of %v: room for %d at %p", d.Name(), room, out)
	}
	if err != nil {
		return fail(err)
	}
	list := slice(out, room)
	i := 0
	for name, v := range of(d) {
		if i < len(list) {
			list[i] = C.chorus_figure{name: interned(name), value: C.int64_t(v)}
		}
		i++
	}
	*n = C.int32_t(i)
	return C.CHORUS_OK
}

//export goDevicePeerCapable
func goDevicePeerCapable(h, peer C.chorus_device, out *C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if out == nil {
		return fail(refused("chorus_device_peer_capable got NULL"))
	}
	*out = 0
	d, err := findDevice(h)
	if err != nil {
		return fail(err)
	}
	p, err := findDevice(peer)
	if err != nil {
		return fail(err)
	}
	capable, err := d.PeerCapable(p)
	if capable {
		*out = 1
	}
	return fail(err)
}

//export goDeviceResetStats
func goDeviceResetStats(h C.chorus_device, peak C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return resetStats(h, peak, (*device.Device).ResetPeakMemoryStats, (*device.Device).ResetAccumulatedMemoryStats)
}

//export goDeviceResetHostStats
func goDeviceResetHostStats(h C.chorus_device, peak C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return resetStats(h, peak, func(d *device.Device) { d.Runtime().ResetPeakPinnedStats() },
		func(d *device.Device) { d.Runtime().ResetAccumulatedPinnedStats() })
}

// resetStats lets a device's peaks begin anew, or the sums and counts.
func resetStats(h C.chorus_device, peak C.int32_t, peaks, sums func(*device.Device)) C.chorus_status {
	d, err := findDevice(h)
	if err != nil {
		return fail(err)
	}
	if peak != 0 {
		peaks(d)
	} else {
		sums(d)
	}
	return C.CHORUS_OK
}

// interned makes a C string of which there is one, for as long as the process lives: for the few that there are.
func interned(s string) *C.char {
	strs.Lock()
	defer strs.Unlock()
	p := strs.of[s]
	if p == nil {
		if strs.of == nil {
			strs.of = map[string]*C.char{}
		}
		p = C.CString(s)
		strs.of[s] = p
	}
	return p
}

var strs struct {
	sync.Mutex
	of map[string]*C.char
}
