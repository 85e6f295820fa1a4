package opencl

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

// hosted is a driver whose devices' memory the processor can touch at any time: [driver.HostKernels] as well.
type hosted struct{ *Driver }

// Launch is [driver.HostKernels].Launch.
func (d hosted) Launch(h driver.StreamHandle, title string, operands []driver.Span,
	f func(views []unsafe.Pointer) error) error {
	const op = "launch"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	b := s.b
	if f == nil {
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%s: no function", title)
	}
	w := work{kind: driver.ActivityKernel, name: title}
	views := make([]unsafe.Pointer, len(operands))
	for i, o := range operands {
		x, err := d.side(b, op, fmt.Sprintf("operand %d of %s", i, title), o.Ptr, o.Bytes)
		if err == nil {
			err = d.touches(b, op, x)
		}
		if err != nil {
			return err
		}
		w.uses = append(w.uses, x)
		views[i] = pointer(uintptr(o.Ptr))
	}
	w.run = func(s *stream) error { return s.function(title, func() error { return f(views) }) }
	return s.submit(op, w)
}

// touches demands that kernels of a device may touch memory.
func (d *Driver) touches(b *dev, op string, x side) error {
	switch {
	case x.typ == driver.HostMemory:
		return nil
	case !x.device():
		return driver.Errorf(driver.ErrWrongKind, b.Name, op, "%v is %v memory, not the device's", x.p, x.typ)
	case !d.Reaches(b.Index, x.a.b.Index):
		return driver.Errorf(driver.ErrWrongDevice, b.Name, op,
			"%v is memory of device %d, to which %s has no access (see SetPeerAccess)", x.p, x.a.b.Index, b.Name)
	}
	return nil
}

// View is [driver.HostKernels].View.
func (d hosted) View(p driver.Ptr, n int) (unsafe.Pointer, error) {
	const op = "view"
	x, err := d.side(d.devs[0], op, "memory", p, n)
	if err != nil {
		return nil, err
	}
	if !x.device() {
		return nil, driver.Errorf(driver.ErrWrongKind, name, op, "%v is %v memory, not a device's", p, x.typ)
	}
	return pointer(uintptr(p)), nil
}
