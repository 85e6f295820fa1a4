//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
)

// home is the device of a communicator, as calls need it.
type home struct {
	handle C.chorus_device
	stream *device.Stream // its default one
}

// current is the calling thread's current stream, in the communicator of a device. currents are the thread's, or nil if
// the caller was not given them.
func (m *communicator) current(currents *C.struct_shim_current) (*device.Stream, error) {
	at := m.home.Load()
	if at == nil {
		d := m.Stream().Device()
		s, err := d.DefaultStream()
		if err != nil {
			return nil, err
		}
		at = &home{C.chorus_device(handleOf(d)), s}
		m.home.Store(at)
	}
	if h := at.currentOf(currents); h != 0 {
		return streamOr(at.stream.Device(), h)
	}
	return at.stream, nil
}

func (at *home) currentOf(currents *C.struct_shim_current) C.chorus_stream {
	if currents == nil {
		return C.shim_current(at.handle)
	}
	for _, c := range unsafe.Slice(currents, C.SHIM_CURRENTS) {
		if c.device == at.handle || c.device == 0 {
			return c.stream
		}
	}
	return 0
}

// scope returns what makes the calling thread's current stream that of a context, in the communicator of a device.
func (m *communicator) scope() (func(context.Context) context.Context, error) {
	if m.Stream() == nil {
		return func(ctx context.Context) context.Context { return ctx }, nil
	}
	s, err := m.current(nil)
	return func(ctx context.Context) context.Context { return device.WithStream(ctx, s) }, err
}

// fillOn is fill for the communicator of a device: the operation is for the calling thread's current stream, and what
// it reads later is its own.
func (k *call) fillOn(m *communicator, o *C.chorus_op, ctx context.Context, currents *C.struct_shim_current) error {
	s, err := m.current(currents)
	if err != nil {
		return err
	}
	if err := k.fill(m, o, ctx); err != nil {
		return err
	}
	k.op.Stream = s
	if f := k.op.Reduce.FactorTensor; f != nil && f.OnHost() {
		own, err := f.Clone()
		if err != nil {
			return err
		}
		k.op.Reduce.FactorTensor = own
	}
	return nil
}

// waits reports whether an asynchronous operation waits in its call, in the communicator of a device: those on the host
// do, and sends for which the stream's work must be done.
func (m *communicator) waits(k *call) bool { return k.onHost() || m.AwaitsStream(k.op.Kind) }

// onHost reports whether the operation is one on the host, in the communicator of a device.
func (k *call) onHost() bool {
	first := k.op.First()
	return first != nil && first.OnHost()
}
