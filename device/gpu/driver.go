package gpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// Driver is the GPUs of a library.
type Driver struct {
	*Library
	name   string
	boards []*board
	memory allocations
	limbo  limbo
	peers  peers

	mu      sync.RWMutex
	streams map[device.StreamHandle]*stream
	events  map[device.EventHandle]*event
	graphs  map[device.GraphHandle]*graph
	execs   map[device.ExecHandle]*exec
	modules map[device.ModuleHandle]*module
	kernels map[device.FunctionHandle]*kernel
	last    uintptr // the last handle that isn't the library's
}

var (
	_ device.Driver    = (*Driver)(nil)
	_ device.Graphs    = (*Driver)(nil)
	_ device.Peers     = (*Driver)(nil)
	_ device.IPC       = (*Driver)(nil)
	_ device.IPCEvents = (*Driver)(nil)
	_ device.Threads   = (*Driver)(nil)
	_ device.Foreign   = (*Driver)(nil)
	_ device.Closer    = (*Driver)(nil)
	_ device.Modules   = (*Driver)(nil)
	_ device.Elements  = (*Driver)(nil)
)

// New makes a driver of a library, which must have at least one GPU.
func New(l *Library) (*Driver, error) {
	d := &Driver{Library: l, name: l.family.Name, last: 1, streams: map[device.StreamHandle]*stream{},
		events: map[device.EventHandle]*event{}, graphs: map[device.GraphHandle]*graph{},
		execs: map[device.ExecHandle]*exec{}, modules: map[device.ModuleHandle]*module{},
		kernels: map[device.FunctionHandle]*kernel{}}
	n := new(int32)
	if r := l.Table.DeviceCount(n); r != abi.Success {
		return nil, l.failed("DeviceGetCount", r)
	}
	if *n == 0 {
		return nil, device.Errorf(device.ErrNoDevice, d.name, "", "%v has no GPU", l)
	}
	for i := range int(*n) {
		b := &board{Library: l, name: fmt.Sprintf("%s:%d", d.name, i), index: i, streams: map[*stream]bool{}}
		if err := b.open(); err != nil {
			return nil, err
		}
		d.boards = append(d.boards, b)
	}
	d.peers.access = make([]bool, len(d.boards)*len(d.boards))
	return d, nil
}

// open finds out what a GPU is like.
func (b *board) open() error {
	const op = "open"
	name, id := make([]byte, 256), new([16]byte)
	total, units, least, greatest := new(uint64), new(int32), new(int32), new(int32)
	attribute := int32(abi.CUDAMultiprocessors)
	if b.family.Name == "hip" {
		attribute = abi.HIPMultiprocessors
	}
	for _, x := range []struct {
		call string
		f    func() abi.Result
	}{
		{"DeviceGet", func() abi.Result { return b.DeviceGet(&b.id, int32(b.index)) }},
		{"DeviceGetName", func() abi.Result { return b.DeviceName(&name[0], int32(len(name)), b.id) }},
		{"DeviceTotalMem", func() abi.Result { return b.DeviceMemory(total, b.id) }},
		{"DeviceGetAttribute", func() abi.Result { return b.DeviceAttribute(units, attribute, b.id) }},
		{"DevicePrimaryCtxRetain", func() abi.Result {
			if b.PrimaryRetain == nil {
				return abi.Success
			}
			return b.PrimaryRetain(&b.context, b.id)
		}},
		{"GetStreamPriorityRange", func() abi.Result {
			return b.do(func() abi.Result { return b.Priorities(least, greatest) })
		}},
	} {
		if err := b.result(op, x.call, x.f()); err != nil {
			return err
		}
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	b.props = device.Properties{Name: string(name), TotalMemory: int64(*total), Units: int(*units),
		PriorityLevels: 1 + max(0, -int(*greatest))}
	if b.DeviceUUID == nil || b.DeviceUUID(id, b.id) != abi.Success {
		copy(id[:], b.family.Name)
		binary.BigEndian.PutUint32(id[12:], uint32(b.index))
	}
	b.props.UUID = *id
	b.waits = b.probe()
	return nil
}

func (d *Driver) board(op string, dev int) (*board, error) {
	if dev < 0 || dev >= len(d.boards) {
		return nil, device.Errorf(device.ErrWrongDevice, d.name, op, "there is no device %d of %d", dev, len(d.boards))
	}
	b := d.boards[dev]
	return b, b.broken()
}

// Bind is [device.Threads].Bind.
func (d *Driver) Bind(dev int) (unbind func(), err error) {
	const op = "bind"
	b, err := d.board(op, dev)
	if err != nil {
		return nil, err
	}
	if b.Push != nil {
		if err := b.result(op, "CtxPushCurrent", b.Push(b.context)); err != nil {
			return nil, err
		}
		return func() { b.Pop(new(abi.Context)) }, nil
	}
	before := new(abi.Device)
	if err := b.result(op, "GetDevice", b.GetDevice(before)); err != nil {
		return nil, err
	}
	if err := b.result(op, "SetDevice", b.SetDevice(b.id)); err != nil {
		return nil, err
	}
	return func() { b.SetDevice(*before) }, nil
}

// DeviceCount is [device.Driver].DeviceCount.
func (d *Driver) DeviceCount() (int, error) { return len(d.boards), nil }

// Properties is [device.Driver].Properties.
func (d *Driver) Properties(dev int) (device.Properties, error) {
	b, err := d.board("properties", dev)
	if err != nil {
		return device.Properties{}, err
	}
	return b.props, nil
}

// Close gives the contexts back. Nothing may be used any more, and no work may be under way.
func (d *Driver) Close() error {
	for _, b := range d.boards {
		if len(b.pending()) > 0 {
			return device.Errorf(device.ErrNotReady, b.name, "close", "it has work")
		}
		d.limbo.reap(b)
	}
	d.mu.Lock()
	modules := slices.Collect(maps.Keys(d.modules))
	d.mu.Unlock()
	for _, m := range modules {
		_ = d.ModuleUnload(m)
	}
	var first error
	for _, b := range d.boards {
		b.pool.Lock()
		events := b.events
		b.events = nil
		b.pool.Unlock()
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
func (d *Driver) Waits(dev int) bool { return dev >= 0 && dev < len(d.boards) && d.boards[dev].waits }
