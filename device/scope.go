package device

import "context"

// scope is one WithDevice or WithStream. Scopes are never changed, so leaving one is nothing to be done.
type scope struct {
	outer  *scope
	dev    *Device
	stream *Stream // nil: the outer scopes', or the device's default
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// WithDevice makes d the current device for calls with the returned context. A nil device changes nothing.
func WithDevice(ctx context.Context, d *Device) context.Context {
	if d == nil {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{}, &scope{outer: scopeOf(ctx), dev: d})
}

// WithStream makes s the current stream of its device, and that the current device. A nil stream changes nothing.
func WithStream(ctx context.Context, s *Stream) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{}, &scope{outer: scopeOf(ctx), dev: s.dev, stream: s})
}

// Current returns the current device: that of the innermost WithDevice or WithStream, else the first of the current
// accelerator, if there is one.
func Current(ctx context.Context) (*Device, error) {
	if s := scopeOf(ctx); s != nil {
		return s.dev, nil
	}
	rt, err := Accelerator()
	if err != nil {
		return nil, err
	}
	return rt.Device(0)
}

// CurrentStream returns the current stream of the current device.
func CurrentStream(ctx context.Context) (*Stream, error) {
	d, err := Current(ctx)
	if err != nil {
		return nil, err
	}
	return d.CurrentStream(ctx)
}

// CurrentStream returns the device's current stream: that of the innermost [WithStream] with one of the device, else
// the default stream. Which device is current makes no difference.
func (d *Device) CurrentStream(ctx context.Context) (*Stream, error) {
	for s := scopeOf(ctx); s != nil; s = s.outer {
		if s.stream != nil && s.dev == d {
			return s.stream, nil
		}
	}
	return d.DefaultStream()
}

// CurrentOf returns the current device if it is of the runtime's type, else the runtime's first: the device that is
// meant where only its type is named.
func (rt *Runtime) CurrentOf(ctx context.Context) (*Device, error) {
	for s := scopeOf(ctx); s != nil; s = s.outer {
		if s.dev.rt == rt {
			return s.dev, nil
		}
	}
	return rt.Device(0)
}
