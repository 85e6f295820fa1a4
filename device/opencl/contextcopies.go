package opencl

import (
	"context"
	"runtime"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// stage copies between memory of two contexts, or of another context than the stream's, by way of the host. It's a
// function of the host.
func stage(to, from side) error {
	if !from.device() || !to.device() {
		return move(to, from)
	}
	const most = 4 << 20
	room := make([]byte, min(to.bytes, most))
	defer runtime.KeepAlive(room)
	for at := 0; at < to.bytes; at += most {
		n := min(most, to.bytes-at)
		host := side{p: driver.Ptr(word(dl.Heap(&room[0]))), bytes: n}
		piece := func(x side) side { x.p, x.bytes = x.p.Add(at), n; return x }
		if err := move(host, piece(from)); err != nil {
			return err
		}
		if err := move(piece(to), host); err != nil {
			return err
		}
	}
	return nil
}

// move copies between a device's memory and the host's, and waits for it.
func move(to, from side) error {
	const op = "copy"
	of := to
	if from.device() {
		of = from
	}
	b := of.a.b
	s, err := b.queue(op, 0)
	if err != nil {
		return err
	}
	s.Lock()
	defer s.Unlock()
	defer s.end(op)
	n := uintptr(to.bytes)
	var r abi.Result
	s.dirty = true
	switch {
	case to.buffered():
		r = b.BufferWrite(s.q, to.a.buf, 0, to.offset(), n, uintptr(from.p), 0, nil, nil)
	case from.buffered():
		r = b.BufferRead(s.q, from.a.buf, 0, from.offset(), n, uintptr(to.p), 0, nil, nil)
	default:
		r = b.SVMCopy(s.q, 0, uintptr(to.p), uintptr(from.p), n, 0, nil, nil)
	}
	if err := b.result(op, "a copy", r); err != nil {
		return err
	}
	return s.wait(op)
}

// wait waits for what a queue of the driver's own has to do. It's locked. Calls of the library that wait aren't used:
// one of Intel's returns before the buffer is read.
func (s *stream) wait(op string) error {
	t, err := s.point(op)
	if err != nil {
		return err
	}
	if err := t.await(context.Background(), op, s.doing); err != nil {
		return err
	}
	if err := t.failure(); err != nil {
		return err
	}
	return nil
}
