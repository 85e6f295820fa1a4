package opencl

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/dl"
)

// alignment of allocations in bytes, as driver.Memory demands it.
const alignment = 256

// allocation is memory that the driver has allocated.
type allocation struct {
	base  driver.Ptr
	bytes int
	typ   driver.MemoryType
	b     *dev  // whose it is, or whose context has pinned memory
	freed bool  // and not yet given back, as work may use it
	buf   *part // what it is in the library; nil: shared virtual memory at base
	free  func()

	wrapped abi.Mem // a buffer over shared virtual memory, for libraries; 0 until one is needed, see dev.buffer
	wrap    sync.Mutex

	block  *hostmem.Block // whose memory it is, if it's the host's
	remote *remote        // if it's another process's
}

// allocations are all of them, by their addresses.
type allocations struct {
	mu   sync.RWMutex
	list []*allocation
}

func (as *allocations) search(p driver.Ptr) int {
	at, found := slices.BinarySearchFunc(as.list, p, func(a *allocation, p driver.Ptr) int {
		switch {
		case a.base < p:
			return -1
		case a.base > p:
			return 1
		}
		return 0
	})
	if !found {
		at--
	}
	return at
}

// known returns the allocation that p points into, unless it was freed; nil for none.
func (as *allocations) known(p driver.Ptr) *allocation {
	as.mu.RLock()
	defer as.mu.RUnlock()
	if i := as.search(p); i >= 0 && int(p-as.list[i].base) < as.list[i].bytes && !as.list[i].freed {
		return as.list[i]
	}
	return nil
}

func (as *allocations) add(a *allocation) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.list = slices.Insert(as.list, as.search(a.base)+1, a)
}

func (as *allocations) remove(a *allocation) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.list = slices.DeleteFunc(as.list, func(o *allocation) bool { return o == a })
}

// free marks an allocation as freed if check has nothing against it.
func (as *allocations) free(p driver.Ptr, check func(a *allocation) error) (*allocation, error) {
	as.mu.Lock()
	defer as.mu.Unlock()
	var a *allocation
	if i := as.search(p); i >= 0 && int(p-as.list[i].base) < as.list[i].bytes && !as.list[i].freed {
		a = as.list[i]
	}
	if err := check(a); err != nil {
		return nil, err
	}
	a.freed = true
	return a, nil
}

// patience is how long an allocation waits for memory that was freed under work.
const patience = 100 * time.Millisecond

// Malloc is [driver.Memory].Malloc.
func (d *Driver) Malloc(dev int, bytes int) (driver.Ptr, error) {
	const op = "allocate"
	b, err := d.dev(op, dev)
	if err != nil {
		return 0, err
	}
	if bytes <= 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, b.name, op, "%d bytes", bytes)
	}
	if int64(bytes) > b.allocation {
		return 0, driver.Errorf(driver.ErrOutOfMemory, b.name, op, "%d bytes; the device allocates %d at a time", bytes,
			b.allocation)
	}
	a := b.allocate(bytes)
	for begin := time.Now(); a == nil && d.deferred.reap(b) > 0 && time.Since(begin) < patience; {
		time.Sleep(time.Millisecond)
	}
	if a == nil {
		a = b.allocate(bytes)
	}
	if a == nil {
		return 0, driver.Errorf(driver.ErrOutOfMemory, b.name, op, "%d bytes, of %d there are %d in use", bytes,
			b.props.TotalMemory, b.used.Load())
	}
	d.memory.add(a)
	return a.base, nil
}

// allocate returns nil if there's not enough memory.
func (b *dev) allocate(bytes int) *allocation {
	if b.used.Add(int64(bytes)) > b.props.TotalMemory {
		b.used.Add(int64(-bytes))
		return nil
	}
	a := &allocation{bytes: bytes, typ: driver.DeviceMemory, b: b}
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
	at := b.SVMAlloc(b.space.h, flags, uintptr(a.bytes), alignment)
	whole := at
	if at == 0 || at%alignment != 0 {
		if at != 0 {
			b.SVMFree(b.space.h, at)
		}
		if whole = b.SVMAlloc(b.space.h, flags, uintptr(a.bytes+alignment), 0); whole == 0 {
			return false
		}
		at = (whole + alignment - 1) / alignment * alignment
	}
	a.base = driver.Ptr(at)
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
	a, err := d.memory.free(p, func(a *allocation) error {
		switch {
		case a == nil:
			return driver.Errorf(driver.ErrInvalidPointer, b.name, op, "%v is not memory of the driver", p)
		case a.typ != driver.DeviceMemory:
			return driver.Errorf(driver.ErrWrongKind, b.name, op, "%v is %v memory", p, a.typ)
		case a.remote != nil:
			return driver.Errorf(driver.ErrInvalidPointer, b.name, op, "%v belongs to another process: close it", p)
		case a.b != b:
			return driver.Errorf(driver.ErrWrongDevice, b.name, op, "%v is memory of %s", p, a.b.name)
		case a.base != p:
			return driver.Errorf(driver.ErrInvalidPointer, b.name, op, "%v lies inside the allocation at %v", p, a.base)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.deferred.add("release", b, b.space.devs, a.bytes, func() { d.give(a) })
	d.deferred.reap(b)
	return nil
}

// give gives memory back. Others may get its address at once.
func (d *Driver) give(a *allocation) {
	d.memory.remove(a)
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
	a := &allocation{bytes: bytes, typ: driver.HostMemory, b: b}
	switch {
	case int64(bytes) > b.props.TotalMemory:
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
	d.memory.add(a)
	return a.base, nil
}

// FreeHost is [driver.Memory].FreeHost.
func (d *Driver) FreeHost(p driver.Ptr) error {
	const op = "free host memory"
	if p == 0 {
		return nil
	}
	a, err := d.memory.free(p, func(a *allocation) error {
		switch {
		case a == nil:
			return driver.Errorf(driver.ErrInvalidPointer, name, op, "%v is not memory of the driver", p)
		case a.typ != driver.HostMemory:
			return driver.Errorf(driver.ErrWrongKind, name, op, "%v is %v memory", p, a.typ)
		case a.base != p:
			return driver.Errorf(driver.ErrInvalidPointer, name, op, "%v lies inside the allocation at %v", p, a.base)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.deferred.add(op, a.b, d.devs, 0, func() { d.give(a) })
	return nil
}

// MemInfo is [driver.Memory].MemInfo. OpenCL doesn't say what others have: free is what the driver hasn't allocated.
func (d *Driver) MemInfo(dev int) (free, total int64, err error) {
	b, err := d.dev("memory info", dev)
	if err != nil {
		return 0, 0, err
	}
	waiting := d.deferred.reap(b)
	return b.props.TotalMemory - b.used.Load() + int64(waiting), b.props.TotalMemory, nil
}

// Attributes is [driver.Memory].Attributes.
func (d *Driver) Attributes(p driver.Ptr) (driver.Attributes, error) {
	if p == 0 {
		return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, name, "attributes", "null")
	}
	a := d.memory.known(p)
	if a == nil {
		return driver.Attributes{Type: driver.Unmanaged, Device: -1, Base: p}, nil
	}
	at := driver.Attributes{Type: a.typ, Device: -1, Base: a.base, Bytes: a.bytes, Remote: a.remote != nil}
	if a.typ == driver.DeviceMemory {
		at.Device = a.b.index
	}
	return at, nil
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
		return x, driver.Errorf(driver.ErrInvalidPointer, b.name, op, "%s: null", what)
	}
	if bytes < 0 {
		return x, driver.Errorf(driver.ErrInvalidArgument, b.name, op, "%s: %d bytes", what, bytes)
	}
	if x.a = d.memory.known(p); x.a == nil {
		return x, nil
	}
	x.typ = x.a.typ
	if bytes > x.a.bytes-int(p-x.a.base) {
		return x, driver.Errorf(driver.ErrOutOfBounds, b.name, op,
			"%s: %d bytes at %v leave the allocation of %d bytes at %v", what, bytes, p, x.a.bytes, x.a.base)
	}
	return x, nil
}

// still demands that memory is what it was, for a replay.
func (x side) still(d *Driver, b *dev, op string) error {
	now, err := d.side(b, op, "a node", x.p, x.bytes)
	if err == nil && now.a != x.a {
		err = driver.Errorf(driver.ErrInvalidPointer, b.name, op, "%v, which a node uses, is other memory now", x.p)
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
	defer s.mu.Unlock()
	b := s.b
	if bytes <= 0 {
		return driver.Errorf(driver.ErrInvalidArgument, b.name, op, "%d bytes", bytes)
	}
	if kind > driver.CopyDefault {
		return driver.Errorf(driver.ErrInvalidArgument, b.name, op, "%v", kind)
	}
	to, err := d.side(b, op, "destination", dst, bytes)
	if err != nil {
		return err
	}
	from, err := d.side(b, op, "source", src, bytes)
	if err != nil {
		return err
	}
	if kind != driver.CopyDefault {
		for _, x := range []struct {
			what   string
			side   side
			device bool
		}{
			{"destination", to, kind == driver.HostToDevice || kind == driver.DeviceToDevice},
			{"source", from, kind == driver.DeviceToHost || kind == driver.DeviceToDevice},
		} {
			if x.side.device() != x.device {
				return driver.Errorf(driver.ErrWrongKind, b.name, op, "%v: the %s %v is %v memory", kind, x.what, x.side.p,
					x.side.typ)
			}
		}
	}
	if dst < src.Add(bytes) && src < dst.Add(bytes) {
		return driver.Errorf(driver.ErrInvalidArgument, b.name, op, "the ranges of %d bytes at %v and %v overlap", bytes,
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
			copy(bytesAt(to.p, to.bytes), bytesAt(from.p, from.bytes))
			return nil
		})
	case to.buffered() && from.buffered():
		return s.enqueue(op, by("clEnqueueCopyBuffer"), func(e *abi.Event) abi.Result {
			return s.b.BufferCopy(s.q, from.a.buf.mem, to.a.buf.mem, from.offset(), to.offset(), n, 0, nil, e)
		})
	case to.buffered():
		return s.enqueue(op, by("clEnqueueWriteBuffer"), func(e *abi.Event) abi.Result {
			return s.b.BufferWrite(s.q, to.a.buf.mem, 0, to.offset(), n, uintptr(from.p), 0, nil, e)
		})
	case from.buffered():
		return s.enqueue(op, by("clEnqueueReadBuffer"), func(e *abi.Event) abi.Result {
			return s.b.BufferRead(s.q, from.a.buf.mem, 0, from.offset(), n, uintptr(to.p), 0, nil, e)
		})
	}
	return s.enqueue(op, by("clEnqueueSVMMemcpy"), func(e *abi.Event) abi.Result {
		return s.b.SVMCopy(s.q, 0, uintptr(to.p), uintptr(from.p), n, 0, nil, e)
	})
}

// bytesAt are bytes of host memory.
func bytesAt(p driver.Ptr, n int) []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n) }

// Fill is [driver.Memory].Fill.
func (d *Driver) Fill(h driver.StreamHandle, dst driver.Ptr, v byte, bytes int) error {
	const op = "fill"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	b := s.b
	if bytes <= 0 {
		return driver.Errorf(driver.ErrInvalidArgument, b.name, op, "%d bytes", bytes)
	}
	to, err := d.side(b, op, "destination", dst, bytes)
	switch {
	case err != nil:
		return err
	case !to.device():
		return driver.Errorf(driver.ErrWrongKind, b.name, op, "%v is %v memory, not the device's", dst, to.typ)
	case !d.reaches(b.index, to.a.b.index):
		return driver.Errorf(driver.ErrWrongDevice, b.name, op, "%v is memory of device %d, to which %s has no access", dst,
			to.a.b.index, b.name)
	}
	w := work{kind: driver.ActivityFill, name: op, uses: []side{to}}
	w.run = func(s *stream) error {
		pattern := dl.Heap(&[1]byte{v})
		c := command{kind: driver.ActivityFill, name: op, bytes: bytes, elements: elementsOf(bytes)}
		if to.buffered() {
			c.call = "clEnqueueFillBuffer"
			return s.enqueue(op, c, func(e *abi.Event) abi.Result {
				return s.b.BufferFill(s.q, to.a.buf.mem, &pattern[0], 1, to.offset(), uintptr(bytes), 0, nil, e)
			})
		}
		c.call = "clEnqueueSVMMemFill"
		return s.enqueue(op, c, func(e *abi.Event) abi.Result {
			return s.b.SVMFill(s.q, uintptr(dst), &pattern[0], 1, uintptr(bytes), 0, nil, e)
		})
	}
	return s.submit(op, w)
}
