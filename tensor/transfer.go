package tensor

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
)

// Copy writes the elements of src into dst as [Tensor.CopyFrom] does, wherever both are.
//
// A device's part runs in the order of its current stream; between two devices, in the order of both. If one side is
// ordinary host memory, Copy returns when that may be touched again. Otherwise, and with pinned memory ([EmptyPinned]),
// it returns at once: the host may touch pinned memory after it has synchronized the stream, and both tensors may be
// freed. Between a host and a device elements are converted on the host. Strides and conversions on a device need a
// driver that is [device.HostKernels], or has a kernel for them, [device.Elements].
func Copy(ctx context.Context, dst, src *Tensor) error {
	if err := dst.checkCopy(src); err != nil || dst.numel == 0 {
		return err
	}
	defer keep(dst, src) // until what needs their memory is enqueued
	switch {
	case dst.OnHost() && src.OnHost():
		return dst.CopyFrom(src)
	case src.OnHost():
		return upload(ctx, dst, src)
	case dst.OnHost():
		return download(ctx, dst, src)
	case dst.On() == src.On():
		return within(ctx, dst, src)
	}
	return between(ctx, dst, src)
}

// plain reports whether a copy is one of bytes.
func plain(dst, src *Tensor) bool { return dst.contiguous && src.contiguous && dst.dt == src.dt }

// upload copies from the host to a device.
func upload(ctx context.Context, dst, src *Tensor) error {
	if !src.contiguous || src.dt != dst.dt {
		host, err := Empty(dst.dt, dst.shape...)
		if err == nil {
			err = host.CopyFrom(src)
		}
		if err != nil {
			return err
		}
		src = host
	}
	if !dst.contiguous {
		tmp, err := EmptyOn(ctx, dst.On(), dst.dt, dst.shape...)
		if err != nil {
			return err
		}
		defer tmp.Free()
		return errors.Join(upload(ctx, tmp, src), within(ctx, dst, tmp))
	}
	s, err := dst.use(ctx)
	if err != nil {
		return err
	}
	if src.Pinned(dst.store.place.rt) {
		return s.Copy(dst.devicePtr(), src.devicePtr(), dst.nbytes)
	}
	return synchronized(ctx, s, src, s.CopyIn(ctx, dst.devicePtr(), src.raw()))
}

// download copies from a device to the host.
func download(ctx context.Context, dst, src *Tensor) error {
	if !src.contiguous {
		tmp, err := Compact(ctx, src)
		if err != nil {
			return err
		}
		defer tmp.Free()
		src = tmp
	}
	if !dst.contiguous || src.dt != dst.dt {
		host, err := Empty(src.dt, src.shape...)
		if err == nil {
			err = download(ctx, host, src)
		}
		if err != nil {
			return err
		}
		return dst.CopyFrom(host)
	}
	s, err := src.use(ctx)
	if err != nil {
		return err
	}
	if dst.Pinned(src.store.place.rt) {
		return s.Copy(dst.devicePtr(), src.devicePtr(), dst.nbytes)
	}
	return synchronized(ctx, s, dst, s.CopyOut(ctx, dst.raw(), src.devicePtr()))
}

// synchronized keeps a host tensor while a copy that was given up is still under way.
func synchronized(ctx context.Context, s *device.Stream, host *Tensor, err error) error {
	if errors.Is(err, device.ErrTimeout) || errors.Is(err, device.ErrCanceled) {
		go func() {
			_ = s.Synchronize(context.WithoutCancel(ctx)) // its error is the stream's, for others to see
			keep(host)
		}()
	}
	keep(host)
	return err
}

// use returns the current stream of the tensor's device, and notes that it uses the tensor.
func (t *Tensor) use(ctx context.Context) (*device.Stream, error) {
	s, err := t.On().CurrentStream(ctx)
	if err != nil {
		return nil, err
	}
	return s, t.UsedBy(s)
}

// within copies on one device.
func within(ctx context.Context, dst, src *Tensor) error {
	s, err := dst.use(ctx)
	if err == nil {
		err = src.UsedBy(s)
	}
	if err != nil {
		return err
	}
	overlap := dst.Overlaps(src)
	if overlap && dst.ptr == src.ptr && dst.dt == src.dt && slices.Equal(dst.strides, src.strides) {
		return nil
	}
	if plain(dst, src) && !overlap {
		return s.Copy(dst.devicePtr(), src.devicePtr(), dst.nbytes)
	}
	if s.HostKernels() {
		return s.Launch("copy_elements", []device.Span{dst.span(), src.span()}, func(views []unsafe.Pointer) error {
			return dst.over(views[0]).CopyFrom(src.over(views[1]))
		})
	}
	if !overlap {
		return copyElements(s, dst, src)
	}
	tmp, err := EmptyOn(ctx, src.On(), src.dt, src.shape...)
	if err != nil {
		return err
	}
	defer tmp.Free()
	return errors.Join(copyElements(s, tmp, src), within(ctx, dst, tmp))
}

// copyElements has a compiled kernel of the device do a copy.
func copyElements(s *device.Stream, dst, src *Tensor) error {
	p := newPair(dst, src)
	return s.CopyElements(dst.devicePtr(), src.devicePtr(), int32(dst.dt), int32(src.dt), append(p.shape, p.n),
		append(p.aStep, p.aRun), append(p.bStep, p.bRun))
}

// between copies from one device to another: what both streams have comes before, and both go on behind it.
func between(ctx context.Context, dst, src *Tensor) error {
	if !plain(dst, src) {
		tmp, err := EmptyOn(ctx, src.On(), dst.dt, dst.shape...)
		if err != nil {
			return err
		}
		defer tmp.Free()
		if err := within(ctx, tmp, src); err != nil {
			return err
		}
		if dst.contiguous {
			return between(ctx, dst, tmp)
		}
		there, err := EmptyOn(ctx, dst.On(), dst.dt, dst.shape...)
		if err != nil {
			return err
		}
		defer there.Free()
		return errors.Join(between(ctx, there, tmp), within(ctx, dst, there))
	}
	to, err := dst.use(ctx)
	if err != nil {
		return err
	}
	from, err := src.use(ctx)
	if err != nil {
		return err
	}
	if dst.On().Runtime() != src.On().Runtime() {
		return device.Errorf(device.ErrUnsupported, dst.On().Name(), "copy",
			"from %s: devices of different types have no way but through the host", src.On().Name())
	}
	if err := from.WaitStream(to); err != nil {
		return err
	}
	if err := from.Copy(dst.devicePtr(), src.devicePtr(), dst.nbytes); err != nil {
		return err
	}
	return to.WaitStream(from)
}

// Fill sets every element to v as [Tensor.Fill] does, wherever the tensor is; on a device in the order of its current
// stream.
func Fill(ctx context.Context, t *Tensor, v any) error {
	if t.OnHost() {
		return t.Fill(v)
	}
	one, err := Empty(t.dt)
	if err == nil {
		err = one.SetAt(v)
	}
	if err != nil || t.numel == 0 {
		return err
	}
	s, err := t.use(ctx)
	if err != nil {
		return err
	}
	defer keep(t)
	elem := one.raw()
	if t.contiguous && !slices.ContainsFunc(elem, func(b byte) bool { return b != elem[0] }) {
		return s.Fill(t.devicePtr(), elem[0], t.nbytes)
	}
	if s.HostKernels() {
		return s.Launch("fill_elements", []device.Span{t.span()}, func(views []unsafe.Pointer) error {
			return t.over(views[0]).Fill(one.Value())
		})
	}
	pinned := !s.Capturing()
	err = fillFrom(ctx, s, t, one, pinned)
	if pinned && errors.Is(err, device.ErrWrongKind) { // kernels can't touch it, as with OpenCL without shared memory
		err = fillFrom(ctx, s, t, one, false)
	}
	return err
}

// fillFrom fills a tensor with an element by a kernel that reads it from pinned memory, or from the device's.
func fillFrom(ctx context.Context, s *device.Stream, t, one *Tensor, pinned bool) error {
	source, err := fillSource(ctx, s, one, pinned)
	if err != nil {
		return err
	}
	defer source.Free() // which is kept until the kernel has run
	if source, err = source.Expand(t.shape...); err != nil {
		return err
	}
	return copyElements(s, t, source)
}

// fillSource is memory with an element, for a kernel on the stream to read. In a capture it's the graph's, on the
// device, since the kernel reads it at each replay.
func fillSource(ctx context.Context, s *device.Stream, one *Tensor, pinned bool) (*Tensor, error) {
	d := s.Device()
	if pinned {
		pinned, err := EmptyPinned(d.Runtime(), one.dt)
		if err == nil {
			err = pinned.CopyFrom(one)
		}
		return pinned, err
	}
	if s.Capturing() && !d.Capturing() {
		return nil, device.Errorf(device.ErrCapture, d.Name(), "fill", "another library captures the stream, whose graph "+
			"can't keep an element with several values of bytes")
	}
	source, err := EmptyOn(device.WithStream(ctx, s), d, one.dt)
	if err != nil {
		return nil, err
	}
	for i, b := range one.raw() {
		if err := s.Fill(source.devicePtr().Add(i), b, 1); err != nil {
			return nil, err
		}
	}
	return source, nil
}

// To is a contiguous copy on a device, nil standing for the host; see [Copy]. It's t itself if that's there and
// contiguous.
func (t *Tensor) To(ctx context.Context, d *device.Device) (*Tensor, error) {
	if d == nil {
		d = host
	}
	if t.On() == d && t.contiguous {
		return t, nil
	}
	return t.copied(ctx, d, t.dt)
}

// Cast is a contiguous copy with elements of another type, where t is; t itself if it is contiguous and of that type.
func Cast(ctx context.Context, t *Tensor, dt dtype.DType) (*Tensor, error) {
	if t.dt == dt && t.contiguous {
		return t, nil
	}
	return t.copied(ctx, t.On(), dt)
}

// Compact is a contiguous copy where t is.
func Compact(ctx context.Context, t *Tensor) (*Tensor, error) { return t.copied(ctx, t.On(), t.dt) }

func (t *Tensor) copied(ctx context.Context, d *device.Device, dt dtype.DType) (c *Tensor, err error) {
	if d == host {
		c, err = Empty(dt, t.shape...)
	} else {
		c, err = EmptyOn(ctx, d, dt, t.shape...)
	}
	if err != nil {
		return nil, err
	}
	return c, Copy(ctx, c, t)
}
