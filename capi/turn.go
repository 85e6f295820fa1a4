//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
)

// pooled are the handles of streams that belong to their devices: each stream has one.
var pooled struct {
	sync.Mutex
	handles map[*device.Device]map[int64]C.chorus_stream // by the stream's ID
}

// handleOfStream returns the handle of a stream that is not the caller's to release.
func handleOfStream(s *device.Stream) (C.chorus_stream, error) {
	if def, err := s.Device().DefaultStream(); err != nil {
		return 0, err
	} else if s == def {
		return defaultStream(s.Device())
	}
	pooled.Lock()
	defer pooled.Unlock()
	of := pooled.handles[s.Device()]
	if h := of[s.ID()]; h != 0 {
		return h, nil
	}
	var h C.chorus_stream
	if err := giveStream(&stream{Stream: s}, &h); err != nil {
		return 0, err
	}
	if of == nil {
		of = map[int64]C.chorus_stream{}
		if pooled.handles == nil {
			pooled.handles = map[*device.Device]map[int64]C.chorus_stream{}
		}
		pooled.handles[s.Device()] = of
	}
	of[s.ID()] = h
	return h, nil
}

//export goStreamPooled
func goStreamPooled(h C.chorus_device, priority C.int32_t, out *C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	return giveStreamOf(h, out, func(d *device.Device) (*device.Stream, error) {
		return d.Stream(device.Priority(priority))
	})
}

//export goStreamOf
func goStreamOf(h C.chorus_device, id C.int64_t, out *C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	return giveStreamOf(h, out, func(d *device.Device) (*device.Stream, error) { return d.StreamByID(int64(id)) })
}

func giveStreamOf(h C.chorus_device, out *C.chorus_stream,
	find func(d *device.Device) (*device.Stream, error)) C.chorus_status {
	d, err := findDevice(h)
	if err == nil && out == nil {
		err = refused("a stream is wanted at NULL")
	}
	if err != nil {
		return fail(err)
	}
	*out = 0
	s, err := find(d)
	if err != nil {
		return fail(err)
	}
	*out, err = handleOfStream(s)
	return fail(err)
}

// inline reports CHORUS_DEVICE_INLINE, as it was at the first call.
var inline = sync.OnceValues(func() (bool, error) {
	cfg, err := config.Load(nil)
	if err != nil {
		return false, refused("%v", err)
	}
	return cfg.DeviceInline, nil
})

//export goStreamEnter
func goStreamEnter(h C.chorus_stream, name *C.char) (status C.chorus_status) {
	defer contain(&status)
	if at, err := inline(); err != nil {
		return fail(err)
	} else if !at {
		return C.CHORUS_PENDING
	}
	return enter(h, name)
}

//export goStreamTurn
func goStreamTurn(h C.chorus_stream, name *C.char) (status C.chorus_status) {
	defer contain(&status)
	return enter(h, name)
}

func enter(h C.chorus_stream, name *C.char) C.chorus_status {
	s, err := findStream(h)
	if err == nil && name == nil {
		err = refused("a turn has no name")
	}
	if err != nil {
		return fail(err)
	}
	entered, err := s.TryAcquire(borrowed(name))
	if err == nil && !entered {
		return C.CHORUS_PENDING
	}
	return fail(err)
}

// borrowed is a string over C's bytes, which stay until it isn't used any more.
func borrowed(s *C.char) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return unsafe.String((*byte)(unsafe.Pointer(s)), n)
}

//export goStreamLeave
func goStreamLeave(h C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil {
		err = s.Release()
	}
	return fail(err)
}
