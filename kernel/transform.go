package kernel

import (
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
)

// TransformLibrary is the library that computes the device's Fourier transforms; [device.ErrUnsupported] if there's
// none, or it has failed. There are no kernels for them.
func (l *Loader) TransformLibrary() (device.Library, error) {
	return l.transforms.open(l.dev, "transform", "Fourier transforms", "CHORUS_FFT_LIBRARY",
		func(c *config.Config) string { return c.FFTLibrary }, l.dev.TransformLibrary)
}

// Transform has the library enqueue a transform. [device.ErrUnsupported] says that it doesn't do this one: nothing is
// enqueued. A library that fails isn't asked again.
func (l *Loader) Transform(s *device.Stream, x *device.Transform) error {
	t, err := l.TransformLibrary()
	if err != nil {
		return err
	}
	return l.transforms.ran(l.dev, "transform", "Fourier transforms", t.Name, s.Transform(x))
}
