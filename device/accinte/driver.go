package accinte

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/engine"
	"github.com/chorus-comms/chorus/hostmem"
)

// Name is the name under which the package registers itself.
const Name = "accinte"

// levels are the priorities of streams: ordinary and high.
const levels = 2

func init() {
	device.RegisterLoader(Name, func() (driver.Driver, error) {
		cfg, err := config.Load(nil)
		if err != nil {
			return nil, err
		}
		return New(Options{Devices: cfg.AccInteDevices, MemoryBytes: cfg.AccInteMemory, NoPeers: !cfg.AccIntePeers})
	})
}

// Options say how the devices are. The zero value is what the variables' defaults give.
type Options struct {
	Name        string // in errors; Name if empty
	Devices     int    // 2 if 0
	MemoryBytes int    // of each device; 4 GiB if 0; rounded up to whole pages
	Units       int    // kernels and copies that run at once on a device; as many as the process has processors if 0
	NoPeers     bool   // the devices can't touch each other's memory
}

// Driver is a set of emulated devices.
type Driver struct {
	*engine.Engine
	opts   Options
	space  *engine.Space
	arenas []*arena
	access [][]atomic.Bool
	closed atomic.Bool

	imports imports
	ranges  reservations
	bound   bound
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.HostKernels = (*Driver)(nil)
	_ driver.CallerRuns  = (*Driver)(nil)
	_ driver.Graphs      = (*Driver)(nil)
	_ driver.IPC         = (*Driver)(nil)
	_ driver.IPCEvents   = (*Driver)(nil)
	_ driver.Peers       = (*Driver)(nil)
	_ driver.Reserver    = (*Driver)(nil)
	_ driver.Tracer      = (*Driver)(nil)
	_ driver.Closer      = (*Driver)(nil)
)

var pageSize = os.Getpagesize()

// New makes devices. Close them to give their addresses back.
func New(o Options) (*Driver, error) {
	if o.Name == "" {
		o.Name = Name
	}
	if o.Devices == 0 {
		o.Devices = 2
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 4 << 30
	}
	if o.Units == 0 {
		o.Units = runtime.GOMAXPROCS(0)
	}
	if o.Devices < 0 || o.MemoryBytes < 0 || o.Units < 0 {
		return nil, driver.Errorf(driver.ErrInvalidArgument, o.Name, "new", "%d devices with %d bytes and %d units",
			o.Devices, o.MemoryBytes, o.Units)
	}
	o.MemoryBytes = roundUp(o.MemoryBytes, pageSize)
	d := &Driver{opts: o, space: &engine.Space{}}
	d.space.Owned = d.owned
	shapes := make([]engine.Device, o.Devices)
	for i := range shapes {
		shapes[i] = engine.Device{Units: o.Units, Levels: levels}
		a, err := newArena(o.MemoryBytes)
		if err != nil {
			d.unmap()
			return nil, driver.Errorf(driver.ErrOutOfMemory, fmt.Sprintf("%s:%d", o.Name, i), "new", "%w", err)
		}
		d.arenas = append(d.arenas, a)
		d.access = append(d.access, make([]atomic.Bool, o.Devices))
		for j := range d.access[i] {
			d.access[i][j].Store(i == j)
		}
	}
	d.Engine = engine.New(o.Name, d.space, shapes...)
	d.Engine.CanTouch = func(dev, other int) bool { return d.access[dev][other].Load() }
	return d, nil
}

// Close releases all memory of the devices, which must be idle ([driver.ErrNotReady]). Nothing may be used any more.
func (d *Driver) Close() error {
	if busy := d.Busy(); busy != "" {
		return driver.Errorf(driver.ErrNotReady, d.opts.Name, "close", "%s", busy)
	}
	if d.closed.Swap(true) {
		return nil
	}
	d.space.Drain()
	return d.unmap()
}

func (d *Driver) unmap() (err error) {
	for _, a := range d.arenas {
		if e := a.close(); e != nil {
			err = e
		}
	}
	return err
}

// Properties is [driver.Driver].Properties.
func (d *Driver) Properties(dev int) (driver.Properties, error) {
	if err := d.Check("properties", dev); err != nil {
		return driver.Properties{}, err
	}
	p := driver.Properties{Name: "Chorus AccInte", TotalMemory: int64(d.opts.MemoryBytes), Units: d.opts.Units,
		PriorityLevels: levels}
	copy(p.UUID[:], "accinte")
	binary.BigEndian.PutUint32(p.UUID[8:], uint32(os.Getpid()))
	binary.BigEndian.PutUint32(p.UUID[12:], uint32(dev))
	return p, nil
}

// PeerCapable is [driver.Peers].PeerCapable.
func (d *Driver) PeerCapable(dev, peer int) (bool, error) {
	if err := d.checkBoth("peer capability", dev, peer); err != nil {
		return false, err
	}
	return dev != peer && !d.opts.NoPeers, nil
}

// PeerAccess is [driver.Peers].PeerAccess.
func (d *Driver) PeerAccess(dev, peer int) (bool, error) {
	if err := d.checkBoth("peer access", dev, peer); err != nil {
		return false, err
	}
	return d.access[dev][peer].Load(), nil
}

// SetPeerAccess is [driver.Peers].SetPeerAccess.
func (d *Driver) SetPeerAccess(dev, peer int, enabled bool) error {
	if err := d.checkBoth("set peer access", dev, peer); err != nil {
		return err
	}
	if dev == peer {
		return driver.Errorf(driver.ErrWrongDevice, d.opts.Name, "set peer access", "device %d is no peer of itself", dev)
	}
	if enabled && d.opts.NoPeers {
		return driver.Errorf(driver.ErrUnsupported, d.opts.Name, "set peer access",
			"device %d can't touch memory of device %d: peers are switched off (CHORUS_ACCINTE_PEERS)", dev, peer)
	}
	d.access[dev][peer].Store(enabled)
	return nil
}

func (d *Driver) checkBoth(op string, dev, peer int) error {
	if err := d.Check(op, dev); err != nil {
		return err
	}
	return d.Check(op, peer)
}

// MallocHost is [driver.Memory].MallocHost. The memory is a block of package hostmem, so peers can map it as well.
func (d *Driver) MallocHost(bytes int) (driver.Ptr, error) {
	if bytes <= 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.opts.Name, "allocate host memory", "%d bytes", bytes)
	}
	b, err := hostmem.Alloc(bytes)
	if err != nil {
		return 0, driver.Errorf(driver.ErrOutOfMemory, d.opts.Name, "allocate host memory", "%w", err)
	}
	p := driver.Ptr(uintptr(b.Pointer()))
	d.space.Add(&engine.Alloc{Base: p, Bytes: bytes, View: b.Pointer(), Type: driver.HostMemory, Device: -1,
		Release: b.Free})
	return p, nil
}

// FreeHost is [driver.Memory].FreeHost.
func (d *Driver) FreeHost(p driver.Ptr) error {
	if p == 0 {
		return nil
	}
	return d.space.Remove("free host memory", p, func(a *engine.Alloc) error {
		if a.Type != driver.HostMemory {
			return driver.Errorf(driver.ErrWrongKind, d.opts.Name, "free host memory", "%v is %v memory", p, a.Type)
		}
		return nil
	})
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
