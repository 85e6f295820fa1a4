package base

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/internal/sys"
)

// Device is what all devices have.
type Device struct {
	Name  string // such as "cuda:0"
	Index int
	Props driver.Properties

	lost atomic.Pointer[driver.WorkError] // set when the device has failed
}

// Lose remembers that a device has failed, as a call of its library has found: nothing works any more. It returns what
// was found first.
func (b *Device) Lose(call string, err error) error {
	b.lost.CompareAndSwap(nil, &driver.WorkError{Device: b.Name, Work: "earlier work, as " + call + " found,",
		At: time.Now(), Err: err})
	return b.lost.Load()
}

// Broken is the error of a device that has failed.
func (b *Device) Broken() error {
	if w := b.lost.Load(); w != nil {
		return w
	}
	return nil
}

// Late is the error of a wait whose context has ended. at says what it waited for since begin.
func (b *Device) Late(ctx context.Context, op string, at func() string, begin time.Time) error {
	kind := driver.ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = driver.ErrTimeout
	}
	return driver.Errorf(kind, b.Name, op, "%s for %v", at(), time.Since(begin).Round(time.Millisecond))
}

// Await waits until done says so, or ctx ends. at says what is waited for.
func (b *Device) Await(ctx context.Context, op string, done func() (bool, error), at func() string) error {
	begin := time.Now()
	for pace := (sys.Backoff{}); ; pace.Pause() {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return b.Late(ctx, op, at, begin)
		}
	}
}

// Priority refuses a priority of a stream that the device has not.
func (b *Device) Priority(op string, priority int) error {
	if priority < 0 || priority >= b.Props.PriorityLevels {
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "priority %d of %d", priority, b.Props.PriorityLevels)
	}
	return nil
}

// Devices are a driver's. A driver that embeds them has DeviceCount, Properties and PeerAccess.
type Devices struct {
	driver string
	list   []*Device

	mu     sync.Mutex
	access []bool // at [dev * devices + peer]: the driver lets dev touch the memory of peer
}

// Set names the driver and its devices, before the first use.
func (ds *Devices) Set(driver string, list []*Device) {
	ds.driver, ds.list, ds.access = driver, list, make([]bool, len(list)*len(list))
}

// Knows refuses indexes that aren't the devices'.
func (ds *Devices) Knows(op string, indexes ...int) error {
	for _, i := range indexes {
		if i < 0 || i >= len(ds.list) {
			return driver.Errorf(driver.ErrWrongDevice, ds.driver, op, "there is no device %d of %d", i, len(ds.list))
		}
	}
	return nil
}

// DeviceCount is [driver.Driver].DeviceCount.
func (ds *Devices) DeviceCount() (int, error) { return len(ds.list), nil }

// Properties is [driver.Driver].Properties.
func (ds *Devices) Properties(dev int) (driver.Properties, error) {
	if err := ds.Knows("properties", dev); err != nil {
		return driver.Properties{}, err
	}
	return ds.list[dev].Props, nil
}

// PeerAccess is [driver.Peers].PeerAccess.
func (ds *Devices) PeerAccess(dev, peer int) (bool, error) {
	if err := ds.Knows("peer access", dev, peer); err != nil {
		return false, err
	}
	return ds.Reaches(dev, peer), nil
}

// Reaches reports whether a device touches the memory of another one, or its own.
func (ds *Devices) Reaches(dev, peer int) bool {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return dev == peer || ds.access[dev*len(ds.list)+peer]
}

// SetPeer is [driver.Peers].SetPeerAccess, for a device that has been found capable or not. set, unless it's nil, does
// it in the library.
func (ds *Devices) SetPeer(dev, peer int, enabled, capable bool, set func(op string) error) error {
	const op = "set peer access"
	switch b := ds.list[dev]; {
	case dev == peer:
		return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "device %d is no peer of itself", dev)
	case enabled && !capable:
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%s can't touch memory of %s", b.Name, ds.list[peer].Name)
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if set != nil {
		if err := set(op); err != nil {
			return err
		}
	}
	ds.access[dev*len(ds.list)+peer] = enabled
	return nil
}

// Reachable refuses memory of a device to which another one has no access. what names it.
func (ds *Devices) Reachable(b *Device, op, what string, of int) error {
	if ds.Reaches(b.Index, of) {
		return nil
	}
	return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "%s is memory of device %d, to which %s has no access", what, of,
		b.Name)
}

// CheckSize refuses a number of bytes that are none.
func (b *Device) CheckSize(op string, bytes int) error {
	if bytes <= 0 {
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%d bytes", bytes)
	}
	return nil
}

// Side is one of a copy's, as a driver has found it.
type Side struct {
	Ptr  driver.Ptr
	Type driver.MemoryType
}

// CheckKind refuses a copy whose sides aren't what its kind says.
func (b *Device) CheckKind(kind driver.CopyKind, dst, src Side) error {
	if kind == driver.CopyDefault {
		return nil
	}
	for _, x := range []struct {
		what string
		Side
		device bool
	}{
		{"destination", dst, kind == driver.HostToDevice || kind == driver.DeviceToDevice},
		{"source", src, kind == driver.DeviceToHost || kind == driver.DeviceToDevice},
	} {
		if (x.Type == driver.DeviceMemory) != x.device {
			return driver.Errorf(driver.ErrWrongKind, b.Name, "copy", "%v: the %s %v is %v memory", kind, x.what, x.Ptr, x.Type)
		}
	}
	return nil
}

// CheckFill refuses to fill memory that isn't a device's, or to which the device has no access.
func (ds *Devices) CheckFill(b *Device, dst Side, of int) error {
	if dst.Type != driver.DeviceMemory {
		return driver.Errorf(driver.ErrWrongKind, b.Name, "fill", "%v is %v memory, not the device's", dst.Ptr, dst.Type)
	}
	if !ds.Reaches(b.Index, of) {
		return driver.Errorf(driver.ErrWrongDevice, b.Name, "fill", "%v is memory of device %d, to which %s has no access",
			dst.Ptr, of, b.Name)
	}
	return nil
}

// Call runs a function of the host. A panic is an error, and a fault on memory of a device one that says so.
func Call(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if fault := device.CatchFault(func() { err = f() }); fault != nil {
		return fault
	}
	return err
}
