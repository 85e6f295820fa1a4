package cpu

import (
	"runtime"
	"sync"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/engine"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/sys"
)

func init() {
	device.RegisterLoader(device.Host, func() (driver.Driver, error) { return New(), nil })
}

// Driver is the host.
type Driver struct {
	*engine.Engine
	space *engine.Space
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.HostKernels = (*Driver)(nil)
	_ driver.CallerRuns  = (*Driver)(nil)
	_ driver.Modules     = (*Driver)(nil)
	_ driver.Graphs      = (*Driver)(nil)
	_ driver.Tracer      = (*Driver)(nil)
)

// Device is the host: where tensors are that are on no other device.
var Device = sync.OnceValue(func() *device.Device {
	rt, err := device.Load(device.Host)
	if err != nil {
		panic(err) // as only a driver that took the name could
	}
	return rt.Devices()[0]
})

// New makes a driver with the host as its one device, on which as many kernels run at once as the process has
// processors.
func New() *Driver {
	d := &Driver{space: &engine.Space{}}
	d.Engine = engine.New(device.Host, d.space, engine.Device{Units: runtime.GOMAXPROCS(0), Levels: 1})
	return d
}

// Properties is [driver.Driver].Properties.
func (d *Driver) Properties(dev int) (driver.Properties, error) {
	if err := d.Check("properties", dev); err != nil {
		return driver.Properties{}, err
	}
	_, total, _ := d.MemInfo(dev) // 0 if the kernel doesn't say
	p := driver.Properties{Name: runtime.GOARCH, TotalMemory: total, Units: runtime.GOMAXPROCS(0), PriorityLevels: 1,
		HostAccess: true}
	copy(p.UUID[:], device.Host)
	return p, nil
}

// MemInfo is [driver.Memory].MemInfo: what the kernel says of the machine.
func (d *Driver) MemInfo(dev int) (free, total int64, err error) {
	if err := d.Check("memory info", dev); err != nil {
		return 0, 0, err
	}
	free, total, err = sys.HostMemory()
	if err != nil {
		return 0, 0, driver.Errorf(driver.ErrInternal, device.Host, "memory info", "%w", err)
	}
	return free, total, nil
}

func (d *Driver) allocate(op string, bytes int, typ driver.MemoryType) (driver.Ptr, error) {
	if bytes <= 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, device.Host, op, "%d bytes", bytes)
	}
	if _, total, err := d.MemInfo(0); err == nil && int64(bytes) > total {
		return 0, driver.Errorf(driver.ErrOutOfMemory, device.Host, op, "%d bytes asked for, the machine has %d", bytes,
			total)
	}
	b, err := hostmem.Alloc(bytes)
	if err != nil {
		return 0, driver.Errorf(driver.ErrOutOfMemory, device.Host, op, "%w", err)
	}
	p := driver.Ptr(uintptr(b.Pointer()))
	d.space.Add(&engine.Alloc{Base: p, Bytes: bytes, View: b.Pointer(), Type: typ, Release: b.Free})
	return p, nil
}

func (d *Driver) release(op string, p driver.Ptr, typ driver.MemoryType) error {
	if p == 0 {
		return nil
	}
	return d.space.Remove(op, p, func(a *engine.Alloc) error {
		if a.Type != typ {
			return driver.Errorf(driver.ErrWrongKind, device.Host, op, "%v is %v memory", p, a.Type)
		}
		return nil
	})
}

// Malloc is [driver.Memory].Malloc.
func (d *Driver) Malloc(dev int, bytes int) (driver.Ptr, error) {
	if err := d.Check("allocate", dev); err != nil {
		return 0, err
	}
	return d.allocate("allocate", bytes, driver.DeviceMemory)
}

// Free is [driver.Memory].Free.
func (d *Driver) Free(dev int, p driver.Ptr) error {
	if err := d.Check("free", dev); err != nil {
		return err
	}
	return d.release("free", p, driver.DeviceMemory)
}

// MallocHost is [driver.Memory].MallocHost.
func (d *Driver) MallocHost(bytes int) (driver.Ptr, error) {
	return d.allocate("allocate host memory", bytes, driver.HostMemory)
}

// FreeHost is [driver.Memory].FreeHost.
func (d *Driver) FreeHost(p driver.Ptr) error {
	return d.release("free host memory", p, driver.HostMemory)
}
