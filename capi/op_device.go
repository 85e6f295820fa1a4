//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"

	"github.com/chorus-comms/chorus/device"
)

// scope returns what makes the calling thread's current stream that of a context, in the communicator of a device.
func (m *communicator) scope() (func(context.Context) context.Context, error) {
	if m.Stream() == nil {
		return func(ctx context.Context) context.Context { return ctx }, nil
	}
	s, err := streamOr(m.Stream().Device(), 0)
	return func(ctx context.Context) context.Context { return device.WithStream(ctx, s) }, err
}

// fillOn is fill for the communicator of a device: the operation is for the calling thread's current stream, and what
// it reads later is its own.
func (k *call) fillOn(m *communicator, o *C.chorus_op, ctx context.Context) error {
	scope, err := m.scope()
	if err != nil {
		return err
	}
	if err := k.fill(m, o, scope(ctx)); err != nil {
		return err
	}
	if f := k.op.Reduce.FactorTensor; f != nil && f.OnHost() {
		own, err := f.Clone()
		if err != nil {
			return err
		}
		k.op.Reduce.FactorTensor = own
	}
	return nil
}

// waits reports whether the operation waits, in the communicator of a device: those on the host do.
func (k *call) waits() bool {
	first := k.op.First()
	return first != nil && first.OnHost()
}

// submitOn is a synchronous operation in the communicator of a device.
func (m *communicator) submitOn(o *C.chorus_op, checked C.int32_t) error {
	k := new(call) // what is enqueued keeps it
	if err := k.fillOn(m, o, context.Background()); err != nil {
		return err
	}
	o.source, o.seq = -1, 0
	if !k.waits() {
		return m.Submit(&k.op, nil)
	}
	scope, err := m.scope()
	if err != nil {
		return err
	}
	err = running(checked, func(ctx context.Context) error {
		k.op.Ctx = scope(ctx)
		return m.Submit(&k.op, nil)
	}, nil)
	if err == nil {
		k.results(o)
	}
	return err
}
