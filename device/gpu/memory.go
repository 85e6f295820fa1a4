package gpu

import (
	"context"
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
)

// allocation is memory that the driver has allocated, or opened from another process.
type allocation struct {
	base.Allocation
	b *gpu // nil: the host's
}

// Malloc is [driver.Memory].Malloc.
func (d *Driver) Malloc(dev int, bytes int) (driver.Ptr, error) {
	const op = "allocate"
	b, err := d.gpu(op, dev)
	if err != nil {
		return 0, err
	}
	if err := b.CheckSize(op, bytes); err != nil {
		return 0, err
	}
	p := new(uintptr)
	r := b.relaxed(func() abi.Result { return b.MemAlloc(p, uint64(bytes)) })
	if r == abi.OutOfMemory {
		d.deferred.Reap(b)
		r = b.relaxed(func() abi.Result { return b.MemAlloc(p, uint64(bytes)) })
	}
	if r != abi.Success {
		return 0, b.result(op, "MemAlloc", r)
	}
	d.memory.Add(&allocation{base.Allocation{Base: driver.Ptr(*p), Bytes: bytes, On: &b.Device}, b})
	return driver.Ptr(*p), nil
}

// Free is [driver.Memory].Free. The library gets the memory back when the streams have done what they have to do.
func (d *Driver) Free(dev int, p driver.Ptr) error {
	const op = "free"
	b, err := d.gpu(op, dev)
	if err != nil || p == 0 {
		return err
	}
	a, err := d.memory.Free(op, &b.Device, p)
	if err != nil {
		return err
	}
	d.deferred.Add(b, []*gpu{b}, a.Bytes, func() {
		d.memory.Remove(a) // first: the library may give the address out again at once
		_ = b.call(op, "MemFree", func() abi.Result { return b.MemFree(uintptr(p)) })
	})
	d.deferred.Reap(b)
	return nil
}

// Reclaim is that of [driver.Reclaimer].
func (d *Driver) Reclaim(dev int) {
	if b, err := d.gpu("reclaim", dev); err == nil {
		d.deferred.Reclaim(b)
	}
}

// MallocHost is [driver.Memory].MallocHost.
func (d *Driver) MallocHost(bytes int) (driver.Ptr, error) {
	const op = "allocate host memory"
	if bytes <= 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.family.Name, op, "%d bytes", bytes)
	}
	b, err := d.anyGPU(op)
	if err != nil {
		return 0, err
	}
	p := new(uintptr)
	err = b.call(op, "MemHostAlloc", func() abi.Result {
		return b.MemHostAlloc(p, uint64(bytes), abi.HostPortable|abi.HostMapped)
	})
	if err != nil {
		return 0, err
	}
	d.memory.Add(&allocation{base.Allocation{Base: driver.Ptr(*p), Bytes: bytes}, nil})
	return driver.Ptr(*p), nil
}

// FreeHost is [driver.Memory].FreeHost.
func (d *Driver) FreeHost(p driver.Ptr) error {
	const op = "free host memory"
	if p == 0 {
		return nil
	}
	a, err := d.memory.FreeHost(op, d.family.Name, p)
	if err != nil {
		return err
	}
	b, err := d.anyGPU(op)
	if err != nil {
		return err
	}
	free := func() {
		d.memory.Remove(a)
		_ = b.call(op, "MemFreeHost", func() abi.Result { return b.MemHostFree(uintptr(p)) })
	}
	if d.several() { // the caller may be another GPU's, for whose work this GPU waits
		d.deferred.Later(b, d.gpus, free)
	} else {
		d.deferred.Add(b, d.gpus, 0, free)
	}
	return nil
}

// MemInfo is [driver.Memory].MemInfo. Freed memory that work still uses counts as free.
func (d *Driver) MemInfo(dev int) (free, total int64, err error) {
	const op = "memory info"
	b, err := d.gpu(op, dev)
	if err != nil {
		return 0, 0, err
	}
	waiting := d.deferred.Reap(b)
	f, t := new(uint64), new(uint64)
	if err := b.call(op, "MemGetInfo", func() abi.Result { return b.Library.MemInfo(f, t) }); err != nil {
		return 0, 0, err
	}
	return int64(*f) + int64(waiting), int64(*t), nil
}

// Attributes is [driver.Memory].Attributes. Memory that others in the process have from the library is known as well.
func (d *Driver) Attributes(p driver.Ptr) (driver.Attributes, error) {
	if p == 0 {
		return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, d.family.Name, "attributes", "null")
	}
	if a, known := d.memory.Find(p); a != nil {
		return a.Attributes(), nil
	} else if !known {
		if at, ok := d.foreign(p); ok {
			return at, nil
		}
	}
	return driver.Attributes{Type: driver.Unmanaged, Device: -1, Base: p}, nil
}

// pointed is what the library knows of a pointer.
type pointed struct{ typ, ordinal, base, bytes uint64 }

var pointerAttributes = [...]int32{abi.PointerMemoryType, abi.PointerDeviceOrdinal, abi.PointerRangeStart,
	abi.PointerRangeSize}

// question is what asks for a pointer's attributes, to be used again.
type question struct {
	attributes [len(pointerAttributes)]int32
	values     [len(pointerAttributes)]uint64
	to         [len(pointerAttributes)]unsafe.Pointer // the values
}

var questions = sync.Pool{New: func() any {
	q := &question{attributes: pointerAttributes}
	for i := range q.values {
		q.to[i] = unsafe.Pointer(&q.values[i])
	}
	return q
}}

// pointer asks the library for it, all at once where it can.
func (d *Driver) pointer(p driver.Ptr) (at pointed, ok bool) {
	do := func(call func() abi.Result) bool {
		if b := d.opened(); b != nil {
			return b.do(call) == abi.Success
		}
		return call() == abi.Success // in the thread's own context; a process without any has no such memory
	}
	q := questions.Get().(*question)
	defer questions.Put(q)
	q.values = [len(pointerAttributes)]uint64{}
	values := &q.values
	if d.PointerAttributes != nil {
		ok = do(func() abi.Result {
			return d.PointerAttributes(uint32(len(q.to)), &q.attributes[0], &q.to[0], uintptr(p))
		})
	} else {
		ok = true
		for i, a := range pointerAttributes {
			known := do(func() abi.Result { return d.PointerAttribute(&values[i], a, uintptr(p)) })
			ok = ok && (known || a == abi.PointerDeviceOrdinal) // which pinned memory may not have
		}
	}
	return pointed{uint64(uint32(values[0])), uint64(uint32(values[1])), values[2], values[3]}, ok
}

// foreign asks the library for memory that the driver hasn't allocated.
func (d *Driver) foreign(p driver.Ptr) (at driver.Attributes, ok bool) {
	x, ok := d.pointer(p)
	if !ok || x.bytes == 0 {
		return at, false
	}
	if d.family.Name == "hip" && d.number < 60_000_000 {
		x.typ++
	}
	at = driver.Attributes{Device: -1, Base: driver.Ptr(x.base), Bytes: int(x.bytes)}
	switch x.typ {
	case abi.MemoryHost:
		at.Type = driver.HostMemory
		return at, true
	case abi.MemoryDevice, abi.MemoryManaged:
		at.Type = driver.DeviceMemory
		at.Device = slices.IndexFunc(d.gpus, func(b *gpu) bool { return b.id == abi.Device(int32(x.ordinal)) })
		return at, at.Device >= 0
	}
	return at, false
}

// side is one of a copy's, checked.
func (d *Driver) side(b *gpu, op, what string, p driver.Ptr, bytes int) (driver.Attributes, error) {
	if p == 0 {
		return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, b.Name, op, "%s: null", what)
	}
	at, err := d.Attributes(p)
	if err == nil && at.Type != driver.Unmanaged && bytes > at.Bytes-int(p-at.Base) {
		err = driver.Errorf(driver.ErrOutOfBounds, b.Name, op, "%s: %d bytes at %v leave the allocation of %d bytes at %v",
			what, bytes, p, at.Bytes, at.Base)
	}
	return at, err
}

// Copy is [driver.Memory].Copy. The library waits for the stream's earlier work where host memory isn't pinned, or both
// sides are the host's. It would do so with the stream's lock held, so that nothing else could be enqueued on the
// stream. Copy waits without the lock instead, and copies between host memory by a function of the host.
func (d *Driver) Copy(h driver.StreamHandle, dst, src driver.Ptr, bytes int, kind driver.CopyKind) error {
	next, err := d.copy(h, dst, src, bytes, kind, true)
	switch next {
	case wait:
		_, _ = d.finish(context.Background(), "copy", h) // work that failed leaves the copy out
		_, err = d.copy(h, dst, src, bytes, kind, false)
	case callHost:
		err = d.HostFunc(h, "copy", func() error {
			copy(base.Bytes(dst, bytes), base.Bytes(src, bytes))
			return nil
		})
	}
	return err
}

// next is what a copy needs after it was checked.
type next int

const (
	nothing  next = iota // it is enqueued, or refused
	wait                 // the library would wait for the stream
	callHost             // a function of the host makes it
)

// copy checks a copy, and enqueues it unless it returns what must be done instead. It returns wait only if mayWait is
// set.
func (d *Driver) copy(h driver.StreamHandle, dst, src driver.Ptr, bytes int, kind driver.CopyKind, mayWait bool) (next,
	error) {
	const op = "copy"
	s, err := d.stream(op, h)
	if err != nil {
		return nothing, err
	}
	defer s.Unlock()
	b := s.b
	if err := b.CheckSize(op, bytes); err != nil {
		return nothing, err
	}
	if kind > driver.CopyDefault {
		return nothing, driver.Errorf(driver.ErrInvalidArgument, b.Name, op, "%v", kind)
	}
	to, err := d.side(b, op, "destination", dst, bytes)
	if err != nil {
		return nothing, err
	}
	from, err := d.side(b, op, "source", src, bytes)
	if err != nil {
		return nothing, err
	}
	if err := b.CheckKind(kind, base.Side{Ptr: dst, Type: to.Type}, base.Side{Ptr: src, Type: from.Type}); err != nil {
		return nothing, err
	}
	if err := s.permits(op); err != nil {
		return nothing, err
	}
	if s.capture == nil && s.unlessCaptured(op) == nil {
		switch {
		case to.Type != driver.DeviceMemory && from.Type != driver.DeviceMemory:
			return callHost, nil
		case mayWait && (to.Type == driver.Unmanaged || from.Type == driver.Unmanaged):
			return wait, nil
		}
	}
	if s.capture != nil {
		s.capture.uses(use{dst, bytes, to.Type}, use{src, bytes, from.Type})
	} else if to.Type == driver.DeviceMemory && from.Type == driver.DeviceMemory {
		d.meet(b, to.Device)
		d.meet(b, from.Device)
	}
	if s.capture == nil && s.broken() != nil {
		return nothing, b.Broken() // left out, unless it's the GPU
	}
	m := d.before(s)
	err = s.result(op, "MemcpyAsync", func() abi.Result {
		if b.CopyAs != nil {
			return b.CopyAs(uintptr(dst), uintptr(src), uint64(bytes), abi.CopyByAddresses, s.h)
		}
		return b.Library.Copy(uintptr(dst), uintptr(src), uint64(bytes), s.h)
	})
	m.after(s, op, driver.Activity{Kind: driver.ActivityCopy, Name: op, Bytes: bytes}, err)
	return nothing, err
}

// Fill is that of [base.Front].
func (s *stream) Fill(op string, dst driver.Ptr, value byte, bytes int) error {
	b, d := s.b, s.b.d
	at, err := d.side(b, op, "destination", dst, bytes)
	if err == nil {
		err = d.CheckFill(&b.Device, base.Side{Ptr: dst, Type: at.Type}, at.Device)
	}
	if err != nil {
		return err
	}
	if err := s.permits(op); err != nil {
		return err
	}
	if s.capture != nil {
		s.capture.uses(use{dst, bytes, at.Type})
	} else if s.broken() != nil {
		return b.Broken()
	}
	m := d.before(s)
	err = s.result(op, "MemsetD8Async", func() abi.Result {
		return b.Library.Fill(uintptr(dst), value, uint64(bytes), s.h)
	})
	m.after(s, op, driver.Activity{Kind: driver.ActivityFill, Name: op, Bytes: bytes}, err)
	return err
}
