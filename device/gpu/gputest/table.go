//go:build linux

package gputest

import (
	"fmt"
	"unsafe"

	"github.com/chorus-comms/chorus/device/gpu/abi"
	"golang.org/x/sys/unix"
)

// Table returns the functions that the library has.
func (l *Library) Table() abi.Table {
	var t abi.Table
	for _, fill := range []func(*abi.Table){l.deviceTable, l.contextTable, l.hipTable, l.memoryTable, l.streamTable,
		l.eventTable, l.ipcTable, l.graphTable, l.moduleTable} {
		fill(&t)
	}
	l.adapt(&t)
	return t
}

// deviceTable fills in what is known of devices, and their access to each other.
func (l *Library) deviceTable(t *abi.Table) {
	d := l.driver
	t.Init = func(uint32) abi.Result { return abi.Success }
	t.GetVersion = func(v *int32) abi.Result {
		*v = 12040
		if l.opts.Name == "hip" {
			*v = 60_443_484
		}
		return abi.Success
	}
	t.DeviceCount = func(n *int32) abi.Result {
		count, err := d.DeviceCount()
		*n = int32(count)
		return result(err)
	}
	t.DeviceGet = func(dev *abi.Device, i int32) abi.Result { *dev = abi.Device(i); return abi.Success }
	t.DeviceName = func(text *byte, n int32, dev abi.Device) abi.Result {
		copy(unsafe.Slice(text, n), fmt.Sprintf("stand-in %d\x00", dev))
		return abi.Success
	}
	t.DeviceAttribute = func(v *int32, attr int32, dev abi.Device) abi.Result {
		want := int32(abi.CUDAMultiprocessors)
		if l.opts.Name == "hip" {
			want = abi.HIPMultiprocessors
		}
		if attr == abi.StreamPriorities {
			*v = 1
			return abi.Success
		}
		if attr != want {
			x, ok := l.attributes()[attr]
			*v = x
			if !ok {
				return abi.InvalidValue
			}
			return abi.Success
		}
		p, err := d.Properties(int(dev))
		*v = int32(p.Units)
		return result(err)
	}
	t.DeviceMemory = func(n *uint64, dev abi.Device) abi.Result {
		p, err := d.Properties(int(dev))
		*n = uint64(p.TotalMemory)
		return result(err)
	}
	t.DeviceUUID = func(id *[16]byte, dev abi.Device) abi.Result {
		p, err := d.Properties(int(dev))
		*id = p.UUID
		return result(err)
	}
	t.Priorities = func(least, greatest *int32) abi.Result {
		return l.on(func(int) abi.Result { *least, *greatest = 0, -1; return abi.Success })
	}
	t.CanAccessPeer = func(can *int32, dev, peer abi.Device) abi.Result {
		ok, err := d.PeerCapable(int(dev), int(peer))
		*can = 0
		if ok {
			*can = 1
		}
		return result(err)
	}
	t.EnablePeer = func(peer abi.PeerRef, _ uint32) abi.Result { return l.peer(peer, true) }
	t.DisablePeer = func(peer abi.PeerRef) abi.Result { return l.peer(peer, false) }
}

// contextTable fills in CUDA's functions of contexts and errors.
func (l *Library) contextTable(t *abi.Table) {
	t.PrimaryRetain = func(c *abi.Context, dev abi.Device) abi.Result {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.primary[dev]++
		*c = contexts + abi.Context(dev)
		return abi.Success
	}
	t.PrimaryRelease = func(dev abi.Device) abi.Result {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.primary[dev] == 0 {
			return abi.InvalidContext
		}
		if l.primary[dev]--; l.primary[dev] == 0 {
			delete(l.primary, dev)
		}
		return abi.Success
	}
	t.GetContext = func(c *abi.Context) abi.Result {
		if *c = 0; l.opts.Name == "cuda" {
			if dev, ok := l.Current(); ok {
				*c = contexts + abi.Context(dev)
			}
		}
		return abi.Success
	}
	t.CaptureMode = l.captureMode
	t.Push = func(c abi.Context) abi.Result {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.primary[abi.Device(c-contexts)] == 0 {
			return abi.InvalidContext
		}
		l.threads[unix.Gettid()] = append(l.threads[unix.Gettid()], c)
		return abi.Success
	}
	t.Pop = func(c *abi.Context) abi.Result {
		l.mu.Lock()
		defer l.mu.Unlock()
		stack := l.threads[unix.Gettid()]
		if len(stack) == 0 {
			return abi.InvalidContext
		}
		*c = stack[len(stack)-1]
		l.threads[unix.Gettid()] = stack[:len(stack)-1]
		return abi.Success
	}
	t.StreamContext = func(s abi.Stream, c *abi.Context) abi.Result {
		dev, err := l.owner(s)
		*c = contexts + abi.Context(dev)
		return result(err)
	}
	t.ErrorNameOf = func(r abi.Result, p **byte) abi.Result { return l.text(p, l.errorName(r)) }
	t.ErrorTextOf = func(r abi.Result, p **byte) abi.Result { return l.text(p, errorText(r)) }
	t.Copy = func(dst, src uintptr, n uint64, s abi.Stream) abi.Result {
		return l.copy(dst, src, n, s)
	}
}

// hipTable fills in what HIP has instead.
func (l *Library) hipTable(t *abi.Table) {
	d := l.driver
	t.HIPProperties = func(p *abi.HIPProperties, _ abi.Device) abi.Result {
		copy(p.Architecture[:], "gfx942:sramecc+:xnack-")
		return abi.Success
	}
	t.GetDevice = func(dev *abi.Device) abi.Result {
		i, _ := l.Current()
		*dev = abi.Device(i)
		return abi.Success
	}
	t.SetDevice = func(dev abi.Device) abi.Result {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.threads[unix.Gettid()] = []abi.Context{contexts + abi.Context(dev)}
		return abi.Success
	}
	t.StreamDevice = func(s abi.Stream, dev *abi.Device) abi.Result {
		i, err := l.owner(s)
		*dev = abi.Device(i)
		return result(err)
	}
	t.ErrorName = l.errorName
	t.ErrorText = errorText
	t.CopyAs = func(dst, src uintptr, n uint64, kind int32, s abi.Stream) abi.Result {
		if kind != abi.CopyByAddresses {
			return abi.InvalidValue
		}
		return l.copy(dst, src, n, s)
	}
	t.ExtMalloc = func(p *uintptr, n uint64, flags uint32) abi.Result {
		if n != 8 || flags != abi.SignalMemory {
			return abi.InvalidValue
		}
		got, err := d.MallocHost(8)
		return give(p, got, err)
	}
}
