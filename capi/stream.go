//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/loader"
)

// stream is what a chorus_stream stands for.
type stream struct {
	*device.Stream
	owned   bool         // of chorus_stream_create
	adopted func() error // gives back a stream of chorus_stream_adopt
	capture *capture
	kernels atomic.Pointer[loader.Loader] // of its device, once it has run a kernel
}

var streams = table[stream]{kind: streamHandles}

func findStream(h C.chorus_stream) (*stream, error) {
	if s := streams.get(uint64(h)); s != nil {
		return s, nil
	}
	return nil, refused("%#x is no stream; it may have been released", uint64(h))
}

func giveStream(s *stream, out *C.chorus_stream) error {
	h := streams.put(s)
	if h == 0 {
		return errors.New("chorus: too many streams")
	}
	*out = C.chorus_stream(h)
	return nil
}

// defaultStream is the handle of a device's default stream, always the same.
func defaultStream(d *device.Device) (C.chorus_stream, error) {
	s, err := d.DefaultStream()
	if err != nil {
		return 0, err
	}
	defaults.Lock()
	defer defaults.Unlock()
	h := defaults.handles[d]
	if h == 0 {
		if err := giveStream(&stream{Stream: s}, &h); err != nil {
			return 0, err
		}
		if defaults.handles == nil {
			defaults.handles = map[*device.Device]C.chorus_stream{}
		}
		defaults.handles[d] = h
	}
	return h, nil
}

// currentStream is this thread's current stream of a device.
func currentStream(d *device.Device) (C.chorus_stream, error) {
	if h := C.shim_current(C.chorus_device(handleOf(d))); h != 0 {
		return h, nil
	}
	return defaultStream(d)
}

// streamOr is a stream of the device, or this thread's current one for 0.
func streamOr(d *device.Device, h C.chorus_stream) (*device.Stream, error) {
	if h == 0 {
		var err error
		if h, err = currentStream(d); err != nil {
			return nil, err
		}
	}
	s, err := findStream(h)
	if err != nil {
		return nil, err
	}
	if s.Device() != d {
		return nil, refused("the stream is of %s, not of %s", s.Device().Name(), d.Name())
	}
	return s.Stream, nil
}

//export goStreamCreate
func goStreamCreate(h C.chorus_device, priority C.int32_t, out *C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && out == nil {
		err = refused("chorus_stream_create got NULL")
	}
	if err != nil {
		return fail(err)
	}
	*out = 0
	s, err := d.NewStream(device.Priority(priority))
	if err != nil {
		return fail(err)
	}
	return fail(giveStream(&stream{Stream: s, owned: true}, out))
}

//export goStreamAdopt
func goStreamAdopt(h C.chorus_device, native C.uint64_t, out *C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && out == nil {
		err = refused("chorus_stream_adopt got NULL")
	}
	if err != nil {
		return fail(err)
	}
	*out = 0
	s, release, err := d.Adopt(device.StreamHandle(native))
	if err != nil {
		return fail(err)
	}
	return fail(giveStream(&stream{Stream: s, adopted: release}, out))
}

//export goStreamNative
func goStreamNative(h C.chorus_stream, native *C.uint64_t) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && native == nil {
		err = refused("chorus_stream_native got NULL")
	}
	if err != nil {
		return fail(err)
	}
	*native = C.uint64_t(s.Handle())
	return fail(nil)
}

//export goStreamCurrent
func goStreamCurrent(h C.chorus_device, isDefault C.int32_t, out *C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	d, err := findDevice(h)
	if err == nil && out == nil {
		err = refused("chorus_stream_current got NULL")
	}
	if err != nil {
		return fail(err)
	}
	if isDefault != 0 {
		*out, err = defaultStream(d)
	} else {
		*out, err = currentStream(d)
	}
	return fail(err)
}

//export goStreamSetCurrent
func goStreamSetCurrent(h C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && C.shim_set_current(C.chorus_device(handleOf(s.Device())), h) == 0 {
		err = errors.New("chorus: a thread has current streams of too many devices")
	}
	return fail(err)
}

//export goStreamGet
func goStreamGet(h C.chorus_stream, info *C.chorus_stream_info) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && info == nil {
		err = refused("chorus_stream_get got NULL")
	}
	if err == nil {
		err = sized("chorus_stream_info", info.size, unsafe.Sizeof(*info))
	}
	if err != nil {
		return fail(err)
	}
	*info = C.chorus_stream_info{size: info.size, priority: C.int32_t(s.Priority()), id: C.int64_t(s.ID()),
		device: C.chorus_device(handleOf(s.Device()))}
	if s.Capturing() {
		info.capturing = 1
	}
	return C.CHORUS_OK
}

//export goStreamQuery
func goStreamQuery(h C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	done, err := s.Query()
	if err == nil && !done {
		return C.CHORUS_PENDING
	}
	return fail(err)
}

//export goStreamSynchronize
func goStreamSynchronize(h C.chorus_stream, ns C.int64_t, recover_, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	if recover_ != 0 {
		return fail(within(ns, checked, s.Recover))
	}
	return fail(settled(ns, checked, s.Synchronize))
}

//export goStreamWaitStream
func goStreamWaitStream(h, other C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	o, err := findStream(other)
	if err != nil {
		return fail(err)
	}
	return fail(s.WaitStream(o.Stream))
}

//export goStreamWaitWork
func goStreamWaitWork(h C.chorus_stream, work C.chorus_work, mayWait, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(work)
	if err != nil {
		return fail(err)
	}
	d := w.m.Stream()
	if d == nil {
		return fail(refused("chorus_stream_wait_work: the work is of no device"))
	}
	var s *device.Stream
	if h == 0 {
		s, err = streamOr(d.Device(), 0)
	} else if of, e := findStream(h); e == nil {
		s = of.Stream
	} else {
		err = e
	}
	if err != nil {
		return fail(err)
	}
	ctx := device.WithStream(context.Background(), s)
	for _, p := range w.parts {
		cw, ok := p.(*comm.Work)
		onHost := ok && !cw.OnDevice() // it's the host that carries it out
		if !ok || onHost && (len(w.ops) == 0 || slices.ContainsFunc(w.ops, (*call).onHost)) {
			return fail(refused("chorus_stream_wait_work: the work is the host's: chorus_work_wait waits for it"))
		}
		if onHost && !cw.Completed() {
			if mayWait == 0 {
				return C.CHORUS_PENDING
			}
			if interrupted, _ := attend(cw.Done(), nil, checked); interrupted {
				return fail(errInterrupted)
			}
		}
		if err := cw.Wait(ctx); err != nil {
			return fail(err)
		}
	}
	return C.CHORUS_OK
}

//export goStreamCopy
func goStreamCopy(h C.chorus_stream, dst, src unsafe.Pointer, bytes C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	if bytes == 0 {
		return C.CHORUS_OK
	}
	return fail(s.Copy(ptr(dst), ptr(src), int(bytes)))
}

//export goStreamRelease
func goStreamRelease(h C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && !s.owned && s.adopted == nil {
		err = refused("a device's default stream is not released")
	}
	if err != nil {
		return fail(err)
	}
	if streams.take(uint64(h)) == nil {
		return fail(refused("%#x is no stream; it may have been released", uint64(h)))
	}
	if s.adopted != nil {
		return fail(s.adopted())
	}
	return fail(s.Close())
}
