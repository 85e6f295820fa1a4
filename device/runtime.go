package device

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

// Runtime is a driver with all that is shared around it. There is one for each type of device; [Open] returns it.
type Runtime struct {
	drv     Driver
	name    atomic.Pointer[string]
	devices []*Device
	err     error // why there are no devices
	pinned  pinnedCache
}

func newRuntime(name string, drv Driver) *Runtime {
	rt := &Runtime{drv: drv}
	rt.rename(name)
	n, err := drv.DeviceCount()
	for i := 0; i < n && err == nil; i++ {
		d := &Device{rt: rt, index: i}
		if d.props, err = drv.Properties(i); err == nil {
			rt.devices = append(rt.devices, d)
		}
	}
	if err != nil {
		rt.devices, rt.err = nil, err
	}
	return rt
}

// NewRuntime wraps a driver that isn't registered, for tests and for programs that hand devices on themselves.
func NewRuntime(name string, drv Driver) *Runtime { return newRuntime(name, drv) }

func (rt *Runtime) rename(name string) { rt.name.Store(&name) }

// Name is the type of the devices, such as "accinte".
func (rt *Runtime) Name() string { return *rt.name.Load() }

// Driver is the vendor's part, for what is not wrapped here. Optional interfaces are found by type assertion.
func (rt *Runtime) Driver() Driver { return rt.drv }

// Count is the number of devices: 0 if the driver can't tell, which [Runtime.Err] explains.
func (rt *Runtime) Count() int { return len(rt.devices) }

// Err is why there are no devices, if the driver has failed to say how many there are.
func (rt *Runtime) Err() error { return rt.err }

// Available reports whether there is a device.
func (rt *Runtime) Available() bool { return rt.Count() > 0 }

// Device returns a device by its index.
func (rt *Runtime) Device(index int) (*Device, error) {
	if index < 0 || index >= len(rt.devices) {
		e := Errorf(ErrWrongDevice, rt.Name(), "", "The device index is out of range. It must be in [0, %d), but got %d.",
			rt.Count(), index)
		e.Err = rt.err
		return nil, e
	}
	return rt.devices[index], nil
}

// Devices returns all devices. The slice belongs to the runtime.
func (rt *Runtime) Devices() []*Device { return rt.devices }

// HostBytes returns memory that the host may touch as a slice: pinned memory, and device memory if
// [Properties].HostAccess says so. Other device memory is [ErrHostAccess], and memory that the driver doesn't know
// [ErrWrongKind]. The slice doesn't keep the memory.
func (rt *Runtime) HostBytes(p Ptr, n int) ([]byte, error) {
	at, err := rt.drv.Attributes(p)
	if err != nil {
		return nil, err
	}
	switch {
	case at.Type == DeviceMemory && !rt.devices[at.Device].props.HostAccess:
		return nil, Errorf(ErrHostAccess, rt.devices[at.Device].Name(), "", "%v: copy it to the host to read it", p)
	case at.Type == driver.Unmanaged:
		return nil, Errorf(ErrWrongKind, rt.Name(), "", "%v is not memory of the driver", p)
	case n < 0 || n > at.Bytes-int(p-at.Base):
		return nil, Errorf(ErrOutOfBounds, rt.Name(), "", "%d bytes at %v leave the allocation of %d bytes at %v", n, p,
			at.Bytes, at.Base)
	}
	return unsafe.Slice((*byte)(pointer(p)), n), nil
}

// pointer makes an address of memory that isn't Go's a pointer. The detour keeps vet from taking it for arithmetic.
func pointer(p Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// close destroys what the runtime made for itself.
func (rt *Runtime) close() (err error) {
	err = rt.EmptyPinnedCache()
	for _, d := range rt.devices {
		err = errors.Join(err, d.close())
	}
	return err
}

// optional returns a driver's optional interface, or the error that names what is missing.
func optional[T any](rt *Runtime, op string) (T, error) {
	x, ok := rt.drv.(T)
	if !ok {
		return x, Errorf(ErrUnsupported, rt.Name(), op, "the driver does not implement %s", fmt.Sprintf("%T", (*T)(nil))[1:])
	}
	return x, nil
}

// CatchFault runs f and returns an [ErrHostAccess] if f touched memory that is a device's, by whatever pointer, instead
// of ending the process. Other panics go on.
func CatchFault(f func()) (err error) {
	old := setPanicOnFault(true)
	defer func() {
		setPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface{ Addr() uintptr }); ok {
			p := Ptr(fault.Addr())
			for _, rt := range loaded() {
				at, aerr := rt.drv.Attributes(p)
				if aerr != nil || at.Type == DeviceMemory { // an error: a device address with nothing there
					err = Errorf(ErrHostAccess, rt.Name(), "", "host code touched device memory at %v", p)
					return
				}
			}
		}
		panic(r)
	}()
	f()
	return nil
}
