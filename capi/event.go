//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
)

var events = table[device.Event]{kind: eventHandles}

func findEvent(h C.chorus_event) (*device.Event, error) {
	if e := events.get(uint64(h)); e != nil {
		return e, nil
	}
	return nil, refused("%#x is no event; it may have been released", uint64(h))
}

//export goEventCreate
func goEventCreate(flags C.int32_t, out *C.chorus_event) (status C.chorus_status) {
	defer contain(&status)
	if out == nil || flags < 0 || flags > C.CHORUS_EVENT_INTERPROCESS {
		return fail(refused("chorus_event_create with flags %d to %p", int32(flags), out))
	}
	return fail(giveEvent(&device.Event{Timing: flags == C.CHORUS_EVENT_TIMING,
		Interprocess: flags == C.CHORUS_EVENT_INTERPROCESS}, out))
}

func giveEvent(e *device.Event, out *C.chorus_event) error {
	h := events.put(e)
	if h == 0 {
		return errors.Join(errors.New("chorus: too many events"), e.Close())
	}
	*out = C.chorus_event(h)
	return nil
}

//export goEventHandle
func goEventHandle(h C.chorus_event, on C.chorus_device, out unsafe.Pointer, room C.int64_t,
	n *C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	e, err := findEvent(h)
	if err != nil {
		return fail(err)
	}
	d, err := findDevice(on)
	if err == nil && (n == nil || room < 0 || out == nil && room > 0) {
		err = refused("chorus_event_handle: room for %d bytes at %p", int64(room), out)
	}
	if err != nil {
		return fail(err)
	}
	b, err := e.IPCHandle(d)
	if err != nil {
		return fail(err)
	}
	*n = C.int64_t(len(b))
	if int(room) < len(b) {
		return fail(refused("chorus_event_handle: the handle has %d bytes, there is room for %d", len(b), int64(room)))
	}
	copy(unsafe.Slice((*byte)(out), len(b)), b)
	return C.CHORUS_OK
}

//export goEventOpen
func goEventOpen(on C.chorus_device, handle unsafe.Pointer, n C.int64_t, out *C.chorus_event) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(on)
	if err == nil && (handle == nil || n < 0 || n > 1<<20 || out == nil) {
		err = refused("chorus_event_open of %d bytes at %p to %p", int64(n), handle, out)
	}
	if err != nil {
		return fail(err)
	}
	*out = 0
	e, err := device.OpenEvent(d, unsafe.Slice((*byte)(handle), int(n)))
	if err != nil {
		return fail(err)
	}
	return fail(giveEvent(e, out))
}

// onStream calls f with an event and a stream.
func onStream(e C.chorus_event, s C.chorus_stream, f func(*device.Event, *stream) error) C.chorus_status {
	event, err := findEvent(e)
	if err != nil {
		return fail(err)
	}
	st, err := findStream(s)
	if err != nil {
		return fail(err)
	}
	return fail(f(event, st))
}

//export goEventRecord
func goEventRecord(e C.chorus_event, s C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	return onStream(e, s, func(e *device.Event, s *stream) error { return s.Record(e) })
}

//export goStreamWaitEvent
func goStreamWaitEvent(s C.chorus_stream, e C.chorus_event) (status C.chorus_status) {
	defer contain(&status)
	return onStream(e, s, func(e *device.Event, s *stream) error { return s.Wait(e) })
}

//export goEventGet
func goEventGet(h C.chorus_event, info *C.chorus_event_info) (status C.chorus_status) {
	defer contain(&status)
	e, err := findEvent(h)
	if err == nil && info == nil {
		err = refused("chorus_event_get got NULL")
	}
	if err == nil {
		err = sized("chorus_event_info", info.size, unsafe.Sizeof(*info))
	}
	if err != nil {
		return fail(err)
	}
	*info = C.chorus_event_info{size: info.size, id: C.int64_t(e.Handle())}
	if d := e.Device(); d != nil {
		info.device = C.chorus_device(handleOf(d))
	}
	return C.CHORUS_OK
}

//export goEventQuery
func goEventQuery(h C.chorus_event) (status C.chorus_status) {
	defer contain(&status)
	e, err := findEvent(h)
	if err != nil {
		return fail(err)
	}
	done, err := e.Query()
	if err == nil && !done {
		return C.CHORUS_PENDING
	}
	return fail(err)
}

//export goEventSynchronize
func goEventSynchronize(h C.chorus_event, ns C.int64_t, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	e, err := findEvent(h)
	if err != nil {
		return fail(err)
	}
	return fail(settled(ns, checked, e.Synchronize))
}

//export goEventElapsed
func goEventElapsed(start, end C.chorus_event, out *C.double) (status C.chorus_status) {
	defer contain(&status)
	from, err := findEvent(start)
	if err != nil {
		return fail(err)
	}
	to, err := findEvent(end)
	if err == nil && out == nil {
		err = refused("chorus_event_elapsed got NULL")
	}
	if err != nil {
		return fail(err)
	}
	t, err := from.Elapsed(to)
	*out = C.double(t.Seconds() * 1000)
	return fail(err)
}

//export goEventRelease
func goEventRelease(h C.chorus_event) (status C.chorus_status) {
	defer contain(&status)
	e := events.take(uint64(h))
	if e == nil {
		_, err := findEvent(h)
		return fail(err)
	}
	return fail(e.Close())
}
