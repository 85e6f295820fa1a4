package mydriver

import (
	"runtime"
	"sort"
	"syscall"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

// alloc is memory that the driver has given. Memory of a device has an address that can't be touched, as a real
// device's: work finds the bytes by it.
type alloc struct {
	base    driver.Ptr
	bytes   []byte
	typ     driver.MemoryType
	dev     int            // -1: the host's
	address []byte         // of a device: what is reserved for it
	pin     runtime.Pinner // C may have the address of the bytes
}

func (a *alloc) end() driver.Ptr { return a.base.Add(len(a.bytes)) }

// where says whose memory it is.
func (a *alloc) where() string {
	if a.dev < 0 {
		return "host"
	}
	return name(a.dev)
}

const alignment = 256

// allocate makes an allocation of Go's memory, which doesn't move.
func (d *Driver) allocate(op string, dev, bytes int, typ driver.MemoryType) (driver.Ptr, error) {
	if bytes <= 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, Name, op, "%d bytes", bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if dev >= 0 {
		u := &d.devices[dev]
		if int64(bytes) > u.total-u.used {
			return 0, driver.Errorf(driver.ErrOutOfMemory, name(dev), op, "%d bytes asked for, %d of %d are free",
				bytes, u.total-u.used, u.total)
		}
		u.used += int64(bytes)
	}
	raw := make([]byte, bytes+alignment)
	lead := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (alignment - 1)
	a := &alloc{bytes: raw[lead:][:bytes:bytes], typ: typ, dev: dev}
	at := a.bytes
	if dev >= 0 {
		var err error
		at, err = syscall.Mmap(-1, 0, bytes, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			d.devices[dev].used -= int64(bytes)
			return 0, driver.Errorf(driver.ErrOutOfMemory, name(dev), op, "no address for %d bytes: %w", bytes, err)
		}
		a.address = at
		a.pin.Pin(unsafe.SliceData(raw))
	}
	a.base = driver.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(at))))
	i := d.after(a.base)
	d.allocs = append(d.allocs, nil)
	copy(d.allocs[i+1:], d.allocs[i:])
	d.allocs[i] = a
	return a.base, nil
}

// after returns the index of the first allocation that begins behind p. The caller holds the lock.
func (d *Driver) after(p driver.Ptr) int {
	return sort.Search(len(d.allocs), func(i int) bool { return d.allocs[i].base > p })
}

// at returns the allocation that p is in, and its index; nil if there's none. The caller holds the lock.
func (d *Driver) at(p driver.Ptr) (*alloc, int) {
	i := d.after(p) - 1
	if i < 0 || p >= d.allocs[i].end() {
		return nil, -1
	}
	return d.allocs[i], i
}

// release takes an allocation back. Work that uses it holds it.
func (d *Driver) release(op string, p driver.Ptr, typ driver.MemoryType, dev int) error {
	if p == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a, i := d.at(p)
	switch {
	case a == nil || a.base != p:
		return driver.Errorf(driver.ErrInvalidPointer, Name, op, "no allocation begins at %v", p)
	case a.typ != typ:
		return driver.Errorf(driver.ErrWrongKind, Name, op, "%v is %v memory", p, a.typ)
	case a.dev != dev:
		return driver.Errorf(driver.ErrWrongDevice, name(dev), op, "%v is memory of %s", p, a.where())
	}
	d.allocs = append(d.allocs[:i], d.allocs[i+1:]...)
	if dev < 0 {
		return nil
	}
	a.pin.Unpin()
	d.devices[dev].used -= int64(len(a.bytes))
	return syscall.Munmap(a.address)
}

// Malloc implements driver.Memory.
func (d *Driver) Malloc(dev, bytes int) (driver.Ptr, error) {
	if err := d.check("allocate", dev); err != nil {
		return 0, err
	}
	return d.allocate("allocate", dev, bytes, driver.DeviceMemory)
}

// Free implements driver.Memory.
func (d *Driver) Free(dev int, p driver.Ptr) error {
	if err := d.check("free", dev); err != nil {
		return err
	}
	return d.release("free", p, driver.DeviceMemory, dev)
}

// MallocHost implements driver.Memory.
func (d *Driver) MallocHost(bytes int) (driver.Ptr, error) {
	return d.allocate("allocate host memory", -1, bytes, driver.HostMemory)
}

// FreeHost implements driver.Memory.
func (d *Driver) FreeHost(p driver.Ptr) error {
	return d.release("free host memory", p, driver.HostMemory, -1)
}

// MemInfo implements driver.Memory.
func (d *Driver) MemInfo(dev int) (free, total int64, err error) {
	if err := d.check("memory info", dev); err != nil {
		return 0, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	u := &d.devices[dev]
	return u.total - u.used, u.total, nil
}

// Attributes implements driver.Memory.
func (d *Driver) Attributes(p driver.Ptr) (driver.Attributes, error) {
	if p == 0 {
		return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, Name, "attributes", "null")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a, _ := d.at(p)
	if a == nil {
		return driver.Attributes{Type: driver.Unmanaged, Device: -1, Base: p}, nil
	}
	return driver.Attributes{Type: a.typ, Device: a.dev, Base: a.base, Bytes: len(a.bytes)}, nil
}

// memory returns n bytes at p, and the allocation that they are in; nil if they are ordinary host memory.
func (d *Driver) memory(op string, p driver.Ptr, n int) (*alloc, []byte, error) {
	switch {
	case p == 0:
		return nil, nil, driver.Errorf(driver.ErrInvalidPointer, Name, op, "null")
	case n < 0:
		return nil, nil, driver.Errorf(driver.ErrInvalidArgument, Name, op, "%d bytes", n)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a, _ := d.at(p)
	if a == nil {
		return nil, unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n), nil
	}
	off := int(p - a.base)
	if n > len(a.bytes)-off {
		return nil, nil, driver.Errorf(driver.ErrOutOfBounds, a.where(), op, "%d bytes at %v, where %d are allocated",
			n, p, len(a.bytes)-off)
	}
	return a, a.bytes[off : off+n], nil
}

// Copy implements driver.Memory.
func (d *Driver) Copy(h driver.StreamHandle, dst, src driver.Ptr, bytes int, kind driver.CopyKind) error {
	s, err := d.stream("copy", h)
	if err != nil {
		return err
	}
	if bytes <= 0 || kind > driver.CopyDefault {
		return driver.Errorf(driver.ErrInvalidArgument, s.device(), "copy", "%d bytes, %v", bytes, kind)
	}
	sides := [2]driver.Ptr{dst, src}
	within := kind == driver.DeviceToDevice
	wants := [2]bool{within || kind == driver.HostToDevice, within || kind == driver.DeviceToHost}
	var at [2][]byte
	for i, p := range sides { // the kind first: what isn't the driver's has no bounds
		here, err := d.Attributes(p)
		if err != nil {
			return err
		}
		if kind != driver.CopyDefault && (here.Type == driver.DeviceMemory) != wants[i] {
			return driver.Errorf(driver.ErrWrongKind, s.device(), "copy", "%v is %v memory; the copy is %v", p, here.Type, kind)
		}
	}
	for i, p := range sides {
		if _, at[i], err = d.memory("copy", p, bytes); err != nil {
			return err
		}
	}
	if dst < src.Add(bytes) && src < dst.Add(bytes) {
		return driver.Errorf(driver.ErrInvalidArgument, s.device(), "copy", "%d bytes at %v and %v overlap", bytes, dst, src)
	}
	s.enqueue(work{name: "copy", run: func() error { copy(at[0], at[1]); return nil }})
	return nil
}

// Fill implements driver.Memory.
func (d *Driver) Fill(h driver.StreamHandle, dst driver.Ptr, value byte, bytes int) error {
	s, err := d.stream("fill", h)
	if err != nil {
		return err
	}
	a, b, err := d.memory("fill", dst, bytes)
	switch {
	case err != nil:
		return err
	case bytes == 0:
		return driver.Errorf(driver.ErrInvalidArgument, s.device(), "fill", "no bytes")
	case a == nil || a.typ != driver.DeviceMemory:
		return driver.Errorf(driver.ErrWrongKind, s.device(), "fill", "%v is no device memory", dst)
	case a.dev != s.dev:
		return driver.Errorf(driver.ErrWrongDevice, s.device(), "fill", "%v is memory of %s", dst, a.where())
	}
	s.enqueue(work{name: "fill", run: func() error {
		for i := range b {
			b[i] = value
		}
		return nil
	}})
	return nil
}
