package kernel

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
)

// transforms is what a device has for Fourier transforms. It's opened when it's first asked for.
type transforms struct {
	once   sync.Once
	found  device.TransformLibrary
	err    error
	broken atomic.Bool // it has failed, and isn't asked any more
	count  atomic.Int64
}

// TransformLibrary is the library that computes the device's Fourier transforms; [device.ErrUnsupported] if there's
// none, or it has failed. There are no kernels for them.
func (l *Loader) TransformLibrary() (device.TransformLibrary, error) {
	t := &l.transforms
	t.once.Do(func() {
		if t.found, t.err = l.dev.TransformLibrary(); t.err == nil {
			return
		}
		if c, err := config.Load(nil); err == nil && c.FFTLibrary != "" && c.FFTLibrary != "none" {
			slog.Warn("chorus: the library of CHORUS_FFT_LIBRARY isn't used, and the processor computes Fourier transforms",
				"device", l.dev.Name(), "error", t.err)
		}
	})
	if t.err == nil && t.broken.Load() {
		return t.found, device.Errorf(device.ErrUnsupported, l.dev.Name(), "transform", "%s has failed", t.found.Name)
	}
	return t.found, t.err
}

// Transform has the library enqueue a transform. [device.ErrUnsupported] says that it doesn't do this one: nothing is
// enqueued. A library that fails isn't asked again.
func (l *Loader) Transform(s *device.Stream, x *device.Transform) error {
	t := &l.transforms
	if _, err := l.TransformLibrary(); err != nil {
		return err
	}
	err := s.Transform(x)
	if err == nil {
		t.count.Add(1)
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
	if !t.broken.Swap(true) {
		slog.Warn("chorus: a library of Fourier transforms has failed, and the processor computes them", "device",
			l.dev.Name(), "library", t.found.Name, "error", err)
	}
	return device.Errorf(device.ErrUnsupported, l.dev.Name(), "transform", "%w", err)
}
