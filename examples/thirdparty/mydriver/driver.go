package mydriver

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
)

// Name is the type of the devices, and Apart that of others, which have nothing but what every driver must have: no
// process can touch their memory, as it is with most hardware.
const (
	Name  = "mine"
	Apart = "apart"
)

func init() {
	device.RegisterLoader(Name, func() (driver.Driver, error) { return New(2, 64<<20), nil })
	device.RegisterLoader(Apart, func() (driver.Driver, error) { return struct{ driver.Driver }{New(2, 64<<20)}, nil })
}

// Driver is a driver.Driver. One lock guards all of it but the streams.
type Driver struct {
	mu      sync.Mutex
	devices []unit
	allocs  []*alloc // by address
	streams map[driver.StreamHandle]*stream
	events  map[driver.EventHandle]*event
	handle  uintptr // the last one given
}

// unit is a device.
type unit struct {
	total, used int64
	streams     map[*stream]struct{} // that exist, or still have work
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.HostKernels = (*Driver)(nil)
)

// New makes a driver of so many devices, each with so many bytes.
func New(devices int, bytes int64) *Driver {
	d := &Driver{streams: map[driver.StreamHandle]*stream{}, events: map[driver.EventHandle]*event{}, handle: 1 << 20}
	for range devices {
		d.devices = append(d.devices, unit{total: bytes, streams: map[*stream]struct{}{}})
	}
	return d
}

// name says which device is meant.
func name(dev int) string { return fmt.Sprintf("%s:%d", Name, dev) }

func (d *Driver) check(op string, dev int) error {
	if dev < 0 || dev >= len(d.devices) {
		return driver.Errorf(driver.ErrWrongDevice, Name, op, "there is no device %d, of %d", dev, len(d.devices))
	}
	return nil
}

// next returns a new handle. The caller holds the lock.
func (d *Driver) next() uintptr {
	d.handle++
	return d.handle
}

// DeviceCount implements driver.Driver.
func (d *Driver) DeviceCount() (int, error) { return len(d.devices), nil }

// Properties implements driver.Driver.
func (d *Driver) Properties(dev int) (driver.Properties, error) {
	if err := d.check("properties", dev); err != nil {
		return driver.Properties{}, err
	}
	p := driver.Properties{Name: "goroutines", TotalMemory: d.devices[dev].total, Units: runtime.GOMAXPROCS(0),
		PriorityLevels: 1}
	copy(p.UUID[:], name(dev))
	return p, nil
}

// Synchronize implements driver.Driver.
func (d *Driver) Synchronize(ctx context.Context, dev int) error {
	if err := d.check("synchronize", dev); err != nil {
		return err
	}
	d.mu.Lock()
	var all []*stream
	for s := range d.devices[dev].streams {
		all = append(all, s)
	}
	d.mu.Unlock()
	var errs []error
	for _, s := range all {
		err := s.wait(ctx, "synchronize", s.now())
		if errors.Is(err, driver.ErrTimeout) || errors.Is(err, driver.ErrCanceled) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Launch implements driver.HostKernels.
func (d *Driver) Launch(h driver.StreamHandle, name string, operands []driver.Span,
	f func(views []unsafe.Pointer) error) error {
	s, err := d.stream("launch", h)
	if err != nil {
		return err
	}
	if f == nil {
		return driver.Errorf(driver.ErrInvalidArgument, s.device(), "launch", "no function")
	}
	views := make([]unsafe.Pointer, len(operands))
	for i, o := range operands {
		a, b, err := d.memory("launch", o.Ptr, o.Bytes)
		switch {
		case err != nil:
			return err
		case a == nil:
			return driver.Errorf(driver.ErrWrongKind, s.device(), "launch", "operand %d is ordinary memory", i)
		case a.typ == driver.DeviceMemory && a.dev != s.dev:
			return driver.Errorf(driver.ErrWrongDevice, s.device(), "launch", "operand %d is memory of %s", i, a.where())
		}
		views[i] = unsafe.Pointer(unsafe.SliceData(b))
	}
	s.enqueue(work{name: name, run: func() error {
		var pin runtime.Pinner // for a kernel in C, though the memory may have been freed since
		defer pin.Unpin()
		for _, v := range views {
			pin.Pin(v)
		}
		return f(views)
	}})
	return nil
}

// View implements driver.HostKernels.
func (d *Driver) View(p driver.Ptr, n int) (unsafe.Pointer, error) {
	a, b, err := d.memory("view", p, n)
	if err != nil {
		return nil, err
	}
	if a == nil || a.typ != driver.DeviceMemory {
		return nil, driver.Errorf(driver.ErrWrongKind, Name, "view", "%v is no device memory", p)
	}
	return unsafe.Pointer(unsafe.SliceData(b)), nil
}
