//go:build cgo

package main

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// stream is what a chorus_stream stands for.
type stream struct {
	*device.Stream
	owned   bool // of chorus_stream_create
	capture *capture
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
	*info = C.chorus_stream_info{size: info.size, priority: C.int32_t(s.Priority()), id: C.int64_t(s.ID()), device: C.chorus_device(handleOf(s.Device()))}
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
	return fail(within(ns, checked, s.Synchronize))
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
func goStreamWaitWork(h C.chorus_stream, work C.chorus_work) (status C.chorus_status) {
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
		if !ok || !cw.OnDevice() {
			return fail(refused("chorus_stream_wait_work: the work is the host's: chorus_work_wait waits for it"))
		}
		if err := cw.Wait(ctx); err != nil {
			return fail(err)
		}
	}
	return C.CHORUS_OK
}

// uses notes that a stream uses memory, if that is a device's, and checks that it's within its allocation.
func (s *stream) uses(p unsafe.Pointer, bytes int) (*tensor.Tensor, error) {
	t, err := bytesAt(p, bytes)
	if t != nil && err == nil {
		err = t.UsedBy(s.Stream)
	}
	return t, err
}

//export goStreamUses
func goStreamUses(h C.chorus_stream, p unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	t, err := s.uses(p, 1)
	if err == nil && t == nil {
		err = refused("%p is not memory of chorus_device_alloc", p)
	}
	return fail(err)
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
	for _, p := range []unsafe.Pointer{dst, src} {
		if _, err := s.uses(p, int(bytes)); err != nil {
			return fail(err)
		}
	}
	return fail(s.Copy(device.Ptr(uintptr(dst)), device.Ptr(uintptr(src)), int(bytes)))
}

//export goStreamFill
func goStreamFill(h C.chorus_stream, p unsafe.Pointer, bytes C.int64_t, element unsafe.Pointer, size C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err != nil {
		return fail(err)
	}
	if size <= 0 || size > 64 || element == nil || bytes < 0 || int64(bytes)%int64(size) != 0 {
		return fail(refused("chorus_stream_fill of %d bytes with an element of %d at %p", int64(bytes), size, element))
	}
	if bytes == 0 {
		return C.CHORUS_OK
	}
	if _, err := s.uses(p, int(bytes)); err != nil {
		return fail(err)
	}
	pattern := C.GoBytes(element, size)
	alike := true
	for _, b := range pattern {
		alike = alike && b == pattern[0]
	}
	if alike {
		return fail(s.Fill(device.Ptr(uintptr(p)), pattern[0], int(bytes)))
	}
	return fail(s.Launch("fill", []device.Span{{Ptr: device.Ptr(uintptr(p)), Bytes: int(bytes)}}, func(views []unsafe.Pointer) error {
		to := unsafe.Slice((*byte)(views[0]), int(bytes))
		for n := copy(to, pattern); n < len(to); n *= 2 {
			copy(to[n:], to[:n])
		}
		return nil
	}))
}

//export goStreamLaunch
func goStreamLaunch(h C.chorus_stream, name *C.char, operands *C.chorus_span, n C.int32_t, f C.chorus_kernel_fn, user unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && f == nil {
		err = refused("chorus_stream_launch got NULL")
	}
	if err == nil {
		err = counted("operands", operands, n, C.CHORUS_MAX_BATCH)
	}
	if err != nil {
		return fail(err)
	}
	what := text(name, "kernel")
	call := func(views []unsafe.Pointer) error {
		var p *unsafe.Pointer
		if len(views) > 0 {
			p = &views[0]
		}
		if code := C.shim_kernel(f, user, p); code != 0 {
			return fmt.Errorf("it returned %d", int(code))
		}
		return nil
	}
	if n == 0 {
		return fail(s.HostFunc(what, func() error { return call(nil) }))
	}
	var spans []device.Span
	for _, o := range slice(operands, n) {
		if _, err := s.uses(o.data, int(o.bytes)); err != nil {
			return fail(err)
		}
		spans = append(spans, device.Span{Ptr: device.Ptr(uintptr(o.data)), Bytes: int(o.bytes)})
	}
	return fail(s.Launch(what, spans, call))
}

//export goStreamRelease
func goStreamRelease(h C.chorus_stream) (status C.chorus_status) {
	defer contain(&status)
	s, err := findStream(h)
	if err == nil && !s.owned {
		err = refused("a device's default stream is not released")
	}
	if err != nil {
		return fail(err)
	}
	if streams.take(uint64(h)) == nil {
		return fail(refused("%#x is no stream; it may have been released", uint64(h)))
	}
	return fail(s.Close())
}
