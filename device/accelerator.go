package device

import (
	"context"
	"errors"
)

// Host is the name of the type of device that the host is, which is never the accelerator.
const Host = "cpu"

// Accelerator returns the accelerator of this process: the first registered type of device, but for the host, that loads
// and has a device. If there is none the error says why each isn't.
func Accelerator() (*Runtime, error) {
	var errs []error
	for _, name := range Types() {
		if name == Host {
			continue
		}
		rt, err := Open(name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !rt.Available():
			errs = append(errs, Errorf(ErrNoDevice, name, "", "there is no device of this type on this machine: %v", rt.Err()))
		default:
			return rt, nil
		}
	}
	if errs == nil {
		return nil, Errorf(ErrNoDevice, "", "accelerator", "no type of device is registered but the host")
	}
	return nil, Errorf(ErrNoDevice, "", "accelerator", "none is available: %w", errors.Join(errs...))
}

// Synchronize waits for all work of the current device.
func Synchronize(ctx context.Context) error {
	d, err := Current(ctx)
	if err != nil {
		return err
	}
	return d.Synchronize(ctx)
}

// HasSeparateMemory reports whether a loaded type of device has memory that the host can't touch.
func HasSeparateMemory() bool { return registry.separate.Load() != nil }

// Of returns the device whose memory p points into, of the types that are loaded; nil if it's the host's, as far as
// their drivers know. An address that only a device can have, and where nothing is, is an error.
func Of(p Ptr) (*Device, error) {
	if !HasSeparateMemory() {
		return nil, nil
	}
	for _, rt := range *registry.separate.Load() {
		at, err := rt.drv.Attributes(p)
		if err != nil {
			return nil, err
		}
		if at.Type == DeviceMemory {
			return rt.Device(at.Device)
		}
	}
	return nil, nil
}
