package gpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

type front = base.Front[*stream, *event, *exec, *graph]

// Driver is the GPUs of a library.
type Driver struct {
	*Library
	base.Devices
	front    // streams have the library's handles
	gpus     []*gpu
	memory   base.Allocations[*allocation]
	deferred base.Frees[*gpu, *ticket] // a call of the library before the end of the work would wait for the whole GPU

	trace     traces.Slot
	launching sync.Mutex // of graphs with functions of the host

	modules *base.Modules[*module, *kernel]
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Graphs      = (*Driver)(nil)
	_ driver.Peers       = (*Driver)(nil)
	_ driver.IPC         = (*Driver)(nil)
	_ driver.IPCEvents   = (*Driver)(nil)
	_ driver.Threads     = (*Driver)(nil)
	_ driver.Foreign     = (*Driver)(nil)
	_ driver.Closer      = (*Driver)(nil)
	_ driver.Modules     = (*Driver)(nil)
	_ driver.Elements    = (*Driver)(nil)
	_ driver.Mathematics = (*Driver)(nil)
	_ driver.PlanCaches  = (*Driver)(nil)
	_ driver.Tracer      = (*Driver)(nil)
)

// New makes a driver of a library, which must have at least one GPU.
func New(l *Library) (*Driver, error) {
	numbers := &base.Numbers{Driver: l.family.Name}
	d := &Driver{Library: l, modules: base.NewModules[*module, *kernel](numbers)}
	d.front.Set(numbers)
	n := new(int32)
	if r := l.Table.DeviceCount(n); r != abi.Success {
		return nil, l.failed("DeviceGetCount", r)
	}
	if *n == 0 {
		return nil, driver.Errorf(driver.ErrNoDevice, d.family.Name, "", "%v has no GPU", l)
	}
	var devices []*base.Device
	for i := range int(*n) {
		b := &gpu{Library: l, d: d, Device: base.Device{Name: fmt.Sprintf("%s:%d", d.family.Name, i), Index: i},
			streams: map[*stream]bool{}, adopted: map[abi.Stream]bool{}, asked: make([]atomic.Bool, *n)}
		b.plans, b.fused = d.newPlans(b), b.newFusedPlans()
		if err := b.identify(); err != nil {
			return nil, err
		}
		d.gpus, devices = append(d.gpus, b), append(devices, &b.Device)
	}
	d.Devices.Set(d.family.Name, devices)
	return d, nil
}

// identify finds out what a GPU is, without a context on it: a process that looks at all GPUs uses one of them.
func (b *gpu) identify() error {
	const op = "identify"
	name, id := make([]byte, 256), new([16]byte)
	total, units, major, minor, priorities := new(uint64), new(int32), new(int32), new(int32), new(int32)
	ofUnits, ofMajor, ofMinor := int32(abi.CUDAMultiprocessors), int32(abi.CUDAMajor), int32(abi.CUDAMinor)
	if b.family.Name == "hip" {
		ofUnits, ofMajor, ofMinor = abi.HIPMultiprocessors, abi.HIPMajor, abi.HIPMinor
	}
	for _, x := range []struct {
		call string
		f    func() abi.Result
	}{
		{"DeviceGet", func() abi.Result { return b.DeviceGet(&b.id, int32(b.Index)) }},
		{"DeviceGetName", func() abi.Result { return b.DeviceName(&name[0], int32(len(name)), b.id) }},
		{"DeviceTotalMem", func() abi.Result { return b.DeviceMemory(total, b.id) }},
		{"DeviceGetAttribute", func() abi.Result { return b.DeviceAttribute(units, ofUnits, b.id) }},
		{"DeviceGetAttribute", func() abi.Result { return b.DeviceAttribute(major, ofMajor, b.id) }},
		{"DeviceGetAttribute", func() abi.Result { return b.DeviceAttribute(minor, ofMinor, b.id) }},
		{"DeviceGetAttribute", func() abi.Result { return b.DeviceAttribute(priorities, abi.StreamPriorities, b.id) }},
	} {
		if err := b.result(op, x.call, x.f()); err != nil {
			return err
		}
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	b.Props = driver.Properties{Name: string(name), Library: b.family.Title + " " + b.version,
		TotalMemory: int64(*total), Units: int(*units), Major: int(*major), Minor: int(*minor),
		PriorityLevels: 1 + min(1, int(*priorities)), CopiesWait: true,
		MostBlocks: driver.Dim{X: math.MaxInt32, Y: math.MaxUint16, Z: math.MaxUint16}}
	if b.family.Name == "hip" {
		b.Props.MostThreads = math.MaxUint32
	}
	if p := new(abi.HIPProperties); b.HIPProperties != nil && b.HIPProperties(p, b.id) == abi.Success {
		architecture, _, _ := bytes.Cut(p.Architecture[:], []byte{0})
		b.Props.Architecture, _, _ = strings.Cut(string(architecture), ":")
	}
	if b.DeviceUUID == nil || b.DeviceUUID(id, b.id) != abi.Success {
		copy(id[:], b.family.Name)
		binary.BigEndian.PutUint32(id[12:], uint32(b.Index))
	}
	b.Props.UUID = *id
	return nil
}

// open makes the GPU usable, at its first use. The process gets a context on it then, which takes some hundred MiB of
// its memory. A GPU that another process has for itself refuses.
func (b *gpu) open() error {
	if b.opened.Load() {
		return nil
	}
	b.opening.Lock()
	defer b.opening.Unlock()
	if b.opened.Load() {
		return nil
	}
	const op = "open"
	if b.PrimaryRetain != nil && b.context == 0 {
		var c abi.Context
		if err := b.result(op, "DevicePrimaryCtxRetain", b.PrimaryRetain(&c, b.id)); err != nil {
			return err
		}
		b.context = c
	}
	least, greatest := new(int32), new(int32)
	if err := b.call(op, "GetStreamPriorityRange", func() abi.Result { return b.Priorities(least, greatest) }); err != nil {
		return err
	}
	b.urgent = min(0, *greatest)
	b.waits = b.probe()
	b.opened.Store(true)
	return nil
}

// gpu is a GPU that is going to be used.
func (d *Driver) gpu(op string, dev int) (*gpu, error) {
	if err := d.Knows(op, dev); err != nil {
		return nil, err
	}
	b := d.gpus[dev]
	if err := b.open(); err != nil {
		return nil, err
	}
	return b, b.Broken()
}

// opened is a GPU that is in use; nil if there is none.
func (d *Driver) opened() *gpu {
	if at := slices.IndexFunc(d.gpus, func(b *gpu) bool { return b.opened.Load() }); at >= 0 {
		return d.gpus[at]
	}
	return nil
}

// anyGPU is a GPU for what is good for all of them, pinned memory for example: one in use, or else the first.
func (d *Driver) anyGPU(op string) (*gpu, error) {
	if b := d.opened(); b != nil {
		return b, nil
	}
	return d.gpu(op, 0)
}

// several reports whether more than one GPU is in use.
func (d *Driver) several() bool {
	n := 0
	for _, b := range d.gpus {
		if b.opened.Load() {
			n++
		}
	}
	return n > 1
}

// Bind is [driver.Threads].Bind.
func (d *Driver) Bind(dev int) (unbind func(), err error) {
	const op = "bind"
	b, err := d.gpu(op, dev)
	if err != nil {
		return nil, err
	}
	if b.bound.on(b) != nil {
		return func() {}, nil
	}
	if b.Push != nil {
		current := new(abi.Context)
		if b.GetContext != nil && b.GetContext(current) == abi.Success && *current == b.context {
			return b.bound.add(b), nil
		}
		if err := b.result(op, "CtxPushCurrent", b.Push(b.context)); err != nil {
			return nil, err
		}
		release := b.bound.add(b)
		return func() { release(); b.Pop(new(abi.Context)) }, nil
	}
	before := new(abi.Device)
	if err := b.result(op, "GetDevice", b.GetDevice(before)); err != nil {
		return nil, err
	}
	if *before == b.id {
		return b.bound.add(b), nil
	}
	if err := b.result(op, "SetDevice", b.SetDevice(b.id)); err != nil {
		return nil, err
	}
	release := b.bound.add(b)
	return func() { release(); b.SetDevice(*before) }, nil
}

// Close gives the contexts back. Nothing may be used any more, and no work may be under way.
func (d *Driver) Close() error {
	for _, b := range d.gpus {
		if len(b.Pending()) > 0 {
			return driver.Errorf(driver.ErrNotReady, b.Name, "close", "it has work")
		}
		d.deferred.Reap(b)
	}
	for _, m := range d.modules.All() {
		_ = d.ModuleUnload(m)
	}
	var first error
	for _, b := range d.gpus {
		if !b.opened.Load() {
			continue
		}
		b.pool.Lock()
		events := b.events
		b.events = nil
		b.pool.Unlock()
		b.fused.Clear()
		b.closeProducts()
		b.plans.Clear()
		err := b.call("close", "EventDestroy", func() (r abi.Result) {
			for _, e := range events {
				if x := b.Library.EventDestroy(e); r == abi.Success {
					r = x
				}
			}
			return r
		})
		if err == nil && b.PrimaryRelease != nil {
			err = b.result("close", "DevicePrimaryCtxRelease", b.PrimaryRelease(b.id))
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// Waits reports whether functions of the host hold up no other functions on a device: the library can wait for words.
func (d *Driver) Waits(dev int) bool {
	b, err := d.gpu("waits", dev)
	return err == nil && b.waits
}
