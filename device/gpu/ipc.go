package gpu

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
)

// handle is what another process gets: the library's, and what it doesn't say.
type handle struct {
	Magic   [8]byte // with what it's a handle of
	Process [8]byte
	Bytes   uint64 // of the allocation
	Library abi.IPCHandle
}

// process tells this process's handles from others'.
var process = func() (id [8]byte) { _, _ = rand.Read(id[:]); return id }()

// magic is of memory ('m') or of an event ('e') of a family.
func (d *Driver) magic(of byte) (m [8]byte) {
	copy(m[:], "chorus"+string(of)+d.family.Prefix[:1])
	return m
}

func (h *handle) encode() []byte {
	b, err := binary.Append(nil, binary.LittleEndian, h)
	if err != nil {
		panic(err) // a struct of integers always encodes
	}
	return b
}

// decode reads a handle from an untrusted peer.
func (d *Driver) decode(b *gpu, op string, of byte, data []byte) (h handle, err error) {
	if len(data) != int(unsafe.Sizeof(h)) {
		err = fmt.Errorf("%d bytes are no IPC handle", len(data))
	} else if _, err = binary.Decode(data, binary.LittleEndian, &h); err == nil {
		switch {
		case h.Magic != d.magic(of), h.Bytes > 1<<48, h.Bytes == 0 && of == 'm':
			err = fmt.Errorf("it is no IPC handle of this kind")
		case h.Process == process:
			err = fmt.Errorf("the handle is of this process, which has what it describes")
		}
	}
	if err != nil {
		return h, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%w", err)
	}
	return h, b.ipc(op)
}

// ipc demands that the library can do it.
func (b *gpu) ipc(op string) error {
	if err := b.caps.Need("IPC"); err != nil {
		return driver.Errorf(driver.ErrUnsupported, b.Name, op, "%w", err)
	}
	return nil
}

// IPCHandle is [driver.IPC].IPCHandle.
func (d *Driver) IPCHandle(p driver.Ptr) ([]byte, error) {
	const op = "IPC handle"
	at, err := d.Attributes(p)
	if err != nil {
		return nil, err
	}
	switch {
	case at.Type != driver.DeviceMemory:
		return nil, driver.Errorf(driver.ErrWrongKind, d.family.Name, op, "%v is %v memory", p, at.Type)
	case at.Remote:
		return nil, driver.Errorf(driver.ErrInvalidArgument, d.family.Name, op,
			"%v was received from another process, and can't be passed on", p)
	case at.Base != p:
		return nil, driver.Errorf(driver.ErrInvalidPointer, d.family.Name, op, "%v is not where its allocation begins: %v", p,
			at.Base)
	}
	b := d.gpus[at.Device]
	if err := b.ipc(op); err != nil {
		return nil, err
	}
	h := &handle{Magic: d.magic('m'), Process: process, Bytes: uint64(at.Bytes)}
	if err := b.call(op, "IpcGetMemHandle", func() abi.Result { return b.IPCGetMem(&h.Library, uintptr(p)) }); err != nil {
		return nil, err
	}
	return h.encode(), nil
}

// IPCOpen is [driver.IPC].IPCOpen. The library sees to it that the device can touch the memory.
func (d *Driver) IPCOpen(dev int, data []byte) (driver.Ptr, error) {
	const op = "open IPC handle"
	b, err := d.gpu(op, dev)
	if err != nil {
		return 0, err
	}
	h, err := d.decode(b, op, 'm', data)
	if err != nil {
		return 0, err
	}
	p := new(uintptr)
	err = b.call(op, "IpcOpenMemHandle", func() abi.Result {
		return b.IPCOpenMem(p, h.Library, abi.IPCLazyPeerAccess)
	})
	if err != nil {
		return 0, err
	}
	a := &allocation{base.Allocation{Base: driver.Ptr(*p), Bytes: int(h.Bytes), On: &b.Device}, b}
	d.memory.Open(a, func(o *allocation, _ bool) bool { return o.Base == a.Base })
	return driver.Ptr(*p), nil
}

// IPCClose is [driver.IPC].IPCClose. The library gets it back when the streams have done what they have to do.
func (d *Driver) IPCClose(p driver.Ptr) error {
	const op = "close IPC handle"
	a, last, err := d.memory.Close(d.family.Name, p)
	if err != nil {
		return err
	}
	closing := func() {
		if last {
			d.memory.Remove(a)
		}
		_ = a.b.call(op, "IpcCloseMemHandle", func() abi.Result { return a.b.IPCCloseMem(uintptr(p)) })
	}
	d.deferred.Add(a.b, d.gpus, 0, closing)
	return nil
}

// IPCEventCreate is [driver.IPCEvents].IPCEventCreate.
func (d *Driver) IPCEventCreate(dev int) (driver.EventHandle, error) {
	const op = "create event"
	b, err := d.gpu(op, dev)
	if err != nil {
		return 0, err
	}
	if err := b.ipc(op); err != nil {
		return 0, err
	}
	h := new(abi.Event)
	err = b.call(op, "EventCreate", func() abi.Result {
		return b.Library.EventCreate(h, abi.EventInterprocess|abi.EventDisableTiming)
	})
	if err != nil {
		return 0, err
	}
	return d.Events.Add(&event{b: b, h: *h, shared: true}), nil
}

// IPCEventHandle is [driver.IPCEvents].IPCEventHandle.
func (d *Driver) IPCEventHandle(eh driver.EventHandle) ([]byte, error) {
	const op = "IPC handle"
	e, err := base.Enter(d.Events, op, eh)
	if err != nil {
		return nil, err
	}
	defer e.Unlock()
	if !e.shared || e.opened {
		return nil, driver.Errorf(driver.ErrInvalidArgument, d.family.Name, op, "event %#x was not made here for other processes",
			uintptr(eh))
	}
	h := &handle{Magic: d.magic('e'), Process: process}
	err = e.b.call(op, "IpcGetEventHandle", func() abi.Result { return e.b.IPCGetEvent(&h.Library, e.h) })
	return h.encode(), err
}

// IPCEventOpen is [driver.IPCEvents].IPCEventOpen. Errors of functions of the other process stay there.
func (d *Driver) IPCEventOpen(dev int, data []byte) (driver.EventHandle, error) {
	const op = "open event"
	b, err := d.gpu(op, dev)
	if err != nil {
		return 0, err
	}
	h, err := d.decode(b, op, 'e', data)
	if err != nil {
		return 0, err
	}
	e := new(abi.Event)
	if err := b.call(op, "IpcOpenEventHandle", func() abi.Result { return b.IPCOpenEvent(e, h.Library) }); err != nil {
		return 0, err
	}
	return d.Events.Add(&event{b: b, h: *e, shared: true, opened: true}), nil
}
