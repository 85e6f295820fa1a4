package opencl

import (
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/dl"
)

// alignment of allocations in bytes, as driver.Memory demands it.
const alignment = 256

// allocation is memory that the driver has allocated.
type allocation struct {
	base.Allocation
	b    *dev    // whose it is, or whose context has pinned memory
	buf  abi.Mem // what it is in the library; 0: shared virtual memory at the base
	free func()

	wrapped abi.Mem // a buffer over shared virtual memory, for libraries; 0 until one is needed, see dev.buffer
	wrap    sync.Mutex

	block  *hostmem.Block // whose memory it is, if it's the host's
	remote *remote        // if it's another process's
}

// Malloc is [driver.Memory].Malloc.
func (d *Driver) Malloc(dev int, bytes int) (driver.Ptr, error) {
	const op = "allocate"
	b, err := d.dev(op, dev)
	if err != nil {
		return 0, err
	}
	if err := b.CheckSize(op, bytes); err != nil {
		return 0, err
	}
	if int64(bytes) > b.allocation {
		return 0, driver.Errorf(driver.ErrOutOfMemory, b.Name, op, "%d bytes; the device allocates %d at a time", bytes,
			b.allocation)
	}
	a := b.allocate(bytes)
	if a == nil {
		d.deferred.Reap(b)
		a = b.allocate(bytes)
	}
	if a == nil {
		return 0, driver.Errorf(driver.ErrOutOfMemory, b.Name, op, "%d bytes, of %d there are %d in use", bytes,
			b.Props.TotalMemory, b.used.Load())
	}
	d.memory.Add(a)
	return a.Base, nil
}

// allocate returns nil if there's not enough memory.
func (b *dev) allocate(bytes int) *allocation {
	if b.used.Add(int64(bytes)) > b.Props.TotalMemory {
		b.used.Add(int64(-bytes))
		return nil
	}
	a := &allocation{Allocation: base.Allocation{Bytes: bytes, On: &b.Device}, b: b}
	var ok bool
	switch {
	case b.svm == 0:
		ok = b.allocateBuffer(a)
	case b.maps():
		ok = b.allocateMapped(a)
	default:
		flags := uint64(abi.MemReadWrite)
		if b.hostAccess() {
			flags |= abi.MemSVMFine
		}
		ok = b.allocateShared(a, flags)
	}
	if !ok {
		b.used.Add(int64(-bytes))
		return nil
	}
	free := a.free
	a.free = func() { free(); b.used.Add(int64(-bytes)) }
	return a
}

// allocateShared allocates shared virtual memory. Libraries need not be able to align it to more than 128 bytes.
func (b *dev) allocateShared(a *allocation, flags uint64) bool {
	at := b.SVMAlloc(b.space.h, flags, uintptr(a.Bytes), alignment)
	whole := at
	if at == 0 || at%alignment != 0 {
		if at != 0 {
			b.SVMFree(b.space.h, at)
		}
		if whole = b.SVMAlloc(b.space.h, flags, uintptr(a.Bytes+alignment), 0); whole == 0 {
			return false
		}
		at = (whole + alignment - 1) / alignment * alignment
	}
	a.Base = driver.Ptr(at)
	a.free = func() { b.SVMFree(b.space.h, whole) }
	return true
}

// Free is [driver.Memory].Free. The library gets the memory back when the streams have done what they have to do.
func (d *Driver) Free(dev int, p driver.Ptr) error {
	const op = "free"
	b, err := d.dev(op, dev)
	if err != nil || p == 0 {
		return err
	}
	a, err := d.memory.Free(op, &b.Device, p)
	if err != nil {
		return err
	}
	d.deferred.Add(b, b.space.devs, a.Bytes, func() { d.give(a) })
	d.deferred.Reap(b)
	return nil
}

// Reclaim is that of [driver.Reclaimer].
func (d *Driver) Reclaim(dev int) {
	if b, err := d.dev("reclaim", dev); err == nil {
		d.deferred.Reclaim(b)
	}
}

// give gives memory back. Others may get its address at once.
func (d *Driver) give(a *allocation) {
	d.memory.Remove(a)
	if a.wrapped != 0 {
		a.b.BufferFree(a.wrapped)
	}
	a.free()
}

// pins is the device whose context has pinned memory: one whose kernels can touch it, if there is one.
func (d *Driver) pins(op string) (*dev, error) {
	at := max(0, slices.IndexFunc(d.devs, func(b *dev) bool { return b.fine() }))
	return d.dev(op, at)
}

// MallocHost is [driver.Memory].MallocHost.
func (d *Driver) MallocHost(bytes int) (driver.Ptr, error) {
	const op = "allocate host memory"
	if bytes <= 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, name, op, "%d bytes", bytes)
	}
	b, err := d.pins(op)
	if err != nil {
		return 0, err
	}
	a := &allocation{Allocation: base.Allocation{Bytes: bytes}, b: b}
	switch {
	case int64(bytes) > b.Props.TotalMemory:
		err = driver.Errorf(driver.ErrOutOfMemory, name, op, "%d bytes", bytes)
	case b.fine():
		if !b.allocateShared(a, abi.MemReadWrite|abi.MemSVMFine) {
			err = driver.Errorf(driver.ErrOutOfMemory, name, op, "%d bytes", bytes)
		}
	default:
		err = b.mapBuffer(op, a)
	}
	if err != nil {
		return 0, err
	}
	d.memory.Add(a)
	return a.Base, nil
}

// FreeHost is [driver.Memory].FreeHost.
func (d *Driver) FreeHost(p driver.Ptr) error {
	const op = "free host memory"
	if p == 0 {
		return nil
	}
	a, err := d.memory.FreeHost(op, name, p)
	if err != nil {
		return err
	}
	d.deferred.Add(a.b, d.devs, 0, func() { d.give(a) })
	return nil
}

// MemInfo is [driver.Memory].MemInfo. OpenCL doesn't say what others have: free is what the driver hasn't allocated.
func (d *Driver) MemInfo(dev int) (free, total int64, err error) {
	b, err := d.dev("memory info", dev)
	if err != nil {
		return 0, 0, err
	}
	waiting := d.deferred.Reap(b)
	return b.Props.TotalMemory - b.used.Load() + int64(waiting), b.Props.TotalMemory, nil
}

// Attributes is [driver.Memory].Attributes.
func (d *Driver) Attributes(p driver.Ptr) (driver.Attributes, error) {
	if p == 0 {
		return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, name, "attributes", "null")
	}
	if a, _ := d.memory.Find(p); a != nil {
		return a.Attributes(), nil
	}
	return driver.Attributes{Type: driver.Unmanaged, Device: -1, Base: p}, nil
}

// side is one of a copy's or a launch's, found and checked.
type side struct {
	p     driver.Ptr
	typ   driver.MemoryType
	a     *allocation // nil if it's unmanaged
	bytes int
}

// side finds and checks memory.
func (d *Driver) side(b *dev, op, what string, p driver.Ptr, bytes int) (side, error) {
	x := side{p: p, bytes: bytes}
	if p == 0 {
		return x, driver.Errorf(driver.ErrInvalidPointer, b.Name, op, "%s: null", what)
	}
	if bytes < 0 {
		return x, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%s: %d bytes", what, bytes)
	}
	if x.a, _ = d.memory.Find(p); x.a == nil {
		return x, nil
	}
	x.typ = x.a.Type()
	if bytes > x.a.Bytes-int(p-x.a.Base) {
		return x, driver.Errorf(driver.ErrOutOfBounds, b.Name, op,
			"%s: %d bytes at %v leave the allocation of %d bytes at %v", what, bytes, p, x.a.Bytes, x.a.Base)
	}
	return x, nil
}

// still demands that memory is what it was, for a replay.
func (x side) still(d *Driver, b *dev, op string) error {
	now, err := d.side(b, op, "a node", x.p, x.bytes)
	if err == nil && now.a != x.a {
		err = driver.Errorf(driver.ErrInvalidPointer, b.Name, op, "%v, which a node uses, is other memory now", x.p)
	}
	return err
}

func (x side) device() bool { return x.typ == driver.DeviceMemory }

// Copy is [driver.Memory].Copy.
func (d *Driver) Copy(h driver.StreamHandle, dst, src driver.Ptr, bytes int, kind driver.CopyKind) error {
	const op = "copy"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	b := s.b
	if err := b.CheckSize(op, bytes); err != nil {
		return err
	}
	if kind > driver.CopyDefault {
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%v", kind)
	}
	to, err := d.side(b, op, "destination", dst, bytes)
	if err != nil {
		return err
	}
	from, err := d.side(b, op, "source", src, bytes)
	if err != nil {
		return err
	}
	if err := b.CheckKind(kind, base.Side{Ptr: dst, Type: to.typ}, base.Side{Ptr: src, Type: from.typ}); err != nil {
		return err
	}
	if dst < src.Add(bytes) && src < dst.Add(bytes) {
		return driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "the ranges of %d bytes at %v and %v overlap", bytes,
			dst, src)
	}
	w := work{kind: driver.ActivityCopy, name: "copy", uses: []side{to, from}}
	w.run = func(s *stream) error { return s.copy(to, from) }
	return s.submit(op, w)
}

// copy enqueues a copy. The stream is locked.
func (s *stream) copy(to, from side) error {
	const op = "copy"
	for _, x := range []side{to, from} {
		if x.device() && x.a.b.space != s.b.space {
			return s.function(op, func() error { return stage(to, from) })
		}
	}
	n := uintptr(to.bytes)
	by := func(call string) command {
		return command{call: call, kind: driver.ActivityCopy, name: op, bytes: to.bytes, elements: elementsOf(to.bytes)}
	}
	switch {
	case !to.device() && !from.device():
		return s.function(op, func() error {
			copy(base.Bytes(to.p, to.bytes), base.Bytes(from.p, from.bytes))
			return nil
		})
	case to.buffered() && from.buffered():
		return s.enqueue(op, by("clEnqueueCopyBuffer"), func(e *abi.Event) abi.Result {
			return s.b.BufferCopy(s.q, from.a.buf, to.a.buf, from.offset(), to.offset(), n, 0, nil, e)
		})
	case to.buffered():
		return s.enqueue(op, by("clEnqueueWriteBuffer"), func(e *abi.Event) abi.Result {
			return s.b.BufferWrite(s.q, to.a.buf, 0, to.offset(), n, uintptr(from.p), 0, nil, e)
		})
	case from.buffered():
		return s.enqueue(op, by("clEnqueueReadBuffer"), func(e *abi.Event) abi.Result {
			return s.b.BufferRead(s.q, from.a.buf, 0, from.offset(), n, uintptr(to.p), 0, nil, e)
		})
	}
	return s.enqueue(op, by("clEnqueueSVMMemcpy"), func(e *abi.Event) abi.Result {
		return s.b.SVMCopy(s.q, 0, uintptr(to.p), uintptr(from.p), n, 0, nil, e)
	})
}

// Fill is that of [base.Front].
func (s *stream) Fill(op string, dst driver.Ptr, v byte, bytes int) error {
	b, d := s.b, s.b.d
	to, err := d.side(b, op, "destination", dst, bytes)
	if err != nil {
		return err
	}
	of := -1
	if to.device() {
		of = to.a.b.Index
	}
	if err := d.CheckFill(&b.Device, base.Side{Ptr: dst, Type: to.typ}, of); err != nil {
		return err
	}
	w := work{kind: driver.ActivityFill, name: op, uses: []side{to}}
	w.run = func(s *stream) error {
		pattern := dl.Heap(&[1]byte{v})
		c := command{kind: driver.ActivityFill, name: op, bytes: bytes, elements: elementsOf(bytes)}
		if to.buffered() {
			c.call = "clEnqueueFillBuffer"
			return s.enqueue(op, c, func(e *abi.Event) abi.Result {
				return s.b.BufferFill(s.q, to.a.buf, &pattern[0], 1, to.offset(), uintptr(bytes), 0, nil, e)
			})
		}
		c.call = "clEnqueueSVMMemFill"
		return s.enqueue(op, c, func(e *abi.Event) abi.Result {
			return s.b.SVMFill(s.q, uintptr(dst), &pattern[0], 1, uintptr(bytes), 0, nil, e)
		})
	}
	return s.submit(op, w)
}
