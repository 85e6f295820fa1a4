//go:build linux

package gputest

import (
	"errors"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// memoryTable fills in the functions of memory.
func (l *Library) memoryTable(t *abi.Table) {
	d := l.driver
	t.MemAlloc = func(p *uintptr, n uint64) abi.Result {
		return l.on(func(dev int) abi.Result {
			got, err := d.Malloc(dev, int(n))
			return give(p, got, err)
		})
	}
	t.MemFree = func(p uintptr) abi.Result {
		return l.on(func(int) abi.Result {
			at, err := d.Attributes(driver.Ptr(p))
			if err != nil || at.Type != driver.DeviceMemory {
				return abi.InvalidValue
			}
			return result(errors.Join(l.idle(at.Device), d.Free(at.Device, driver.Ptr(p))))
		})
	}
	t.MemHostAlloc = func(p *uintptr, n uint64, flags uint32) abi.Result {
		return l.on(func(int) abi.Result {
			if flags&abi.HostPortable == 0 {
				return abi.InvalidValue // good for one device alone
			}
			got, err := d.MallocHost(int(n))
			return give(p, got, err)
		})
	}
	t.MemHostFree = func(p uintptr) abi.Result {
		return l.on(func(dev int) abi.Result { return result(errors.Join(l.idle(dev), d.FreeHost(driver.Ptr(p)))) })
	}
	t.MemInfo = func(free, total *uint64) abi.Result {
		return l.on(func(dev int) abi.Result {
			f, t, err := d.MemInfo(dev)
			*free, *total = uint64(f), uint64(t)
			return result(err)
		})
	}
	t.PointerAttribute = l.pointer
	t.PointerAttributes = func(n uint32, attributes *int32, values *unsafe.Pointer, p uintptr) abi.Result {
		for i, a := range unsafe.Slice(attributes, n) {
			v := new(uint64)
			if l.pointer(v, a, p) != abi.Success {
				*v = 0 // of a pointer that it doesn't know
			}
			to := unsafe.Slice(values, n)[i]
			if a == abi.PointerRangeStart || a == abi.PointerRangeSize {
				*(*uint64)(to) = *v
			} else {
				*(*uint32)(to) = uint32(*v)
			}
		}
		return abi.Success
	}
	t.Fill = func(p uintptr, value uint8, n uint64, s abi.Stream) abi.Result {
		return l.on(func(int) abi.Result { return result(d.Fill(driver.StreamHandle(s), driver.Ptr(p), value, int(n))) })
	}
}

// ipcTable fills in what other processes open: memory and events.
func (l *Library) ipcTable(t *abi.Table) {
	d := l.driver
	t.IPCGetMem = func(h *abi.IPCHandle, p uintptr) abi.Result {
		b, err := d.IPCHandle(driver.Ptr(p))
		return pack(h, b, err)
	}
	t.IPCOpenMem = func(p *uintptr, h abi.IPCHandle, _ uint32) abi.Result {
		return l.on(func(dev int) abi.Result {
			got, err := d.IPCOpen(dev, unpack(h))
			return give(p, got, err)
		})
	}
	t.IPCCloseMem = func(p uintptr) abi.Result { return result(d.IPCClose(driver.Ptr(p))) }
	t.IPCGetEvent = func(h *abi.IPCHandle, e abi.Event) abi.Result {
		b, err := d.IPCEventHandle(driver.EventHandle(e))
		return pack(h, b, err)
	}
	t.IPCOpenEvent = func(e *abi.Event, h abi.IPCHandle) abi.Result {
		return l.on(func(dev int) abi.Result {
			got, err := d.IPCEventOpen(dev, unpack(h))
			return give(e, got, err)
		})
	}
}
