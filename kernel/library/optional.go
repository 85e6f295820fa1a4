package library

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
)

// optional is a library for work that has no kernels. It's opened when it's first asked for.
type optional struct {
	once   sync.Once
	found  device.Library
	err    error
	broken atomic.Bool // it has failed, and isn't asked any more
	count  atomic.Int64
}

// open is the library; [device.ErrUnsupported] if there's none, or it has failed. A variable may name it: files is its
// value. work is what the processor does without it, in words, and op in errors.
func (x *optional) open(of *Libraries, op, work, variable string, files func(*config.Config) string,
	ask func() (device.Library, error)) (device.Library, error) {
	x.once.Do(func() {
		if x.found, x.err = ask(); x.err != nil {
			of.warn(variable, files, "the processor computes "+work, x.err)
		}
	})
	if x.err == nil && x.broken.Load() {
		return x.found, device.Errorf(device.ErrUnsupported, of.dev.Name(), op, "the library has failed")
	}
	return x.found, x.err
}

// ran counts work that the library was asked for. An error that isn't the caller's becomes [device.ErrUnsupported], and
// the library isn't asked again.
func (x *optional) ran(dev *device.Device, op, work, name string, err error) error {
	if err == nil {
		x.count.Add(1)
		return nil
	}
	if _, failed := errors.AsType[*device.WorkError](err); failed {
		return err
	}
	for _, kind := range []device.Kind{device.ErrUnsupported, device.ErrCapture, device.ErrInvalidArgument,
		device.ErrOutOfBounds, device.ErrInvalidPointer, device.ErrWrongDevice, device.ErrOutOfMemory} {
		if errors.Is(err, kind) {
			return err
		}
	}
	if !x.broken.Swap(true) {
		slog.Warn("chorus: a library of "+work+" has failed, and the processor computes them", "device", dev.Name(),
			"library", name, "error", err)
	}
	return device.Errorf(device.ErrUnsupported, dev.Name(), op, "%w", err)
}
