package opencl

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

func (x side) buffered() bool { return x.device() && x.a.buf != 0 }

func (x side) offset() uintptr { return uintptr(x.p - x.a.Base) }

// allocateBuffer makes a buffer, on a device without shared virtual memory. The allocation's addresses are reserved, and
// nothing is there: a pointer into it stands for the buffer and an offset.
func (b *dev) allocateBuffer(a *allocation) bool {
	r := new(abi.Result)
	mem := b.BufferMake(b.space.h, abi.MemReadWrite, uintptr(a.Bytes), 0, r)
	if *r != abi.Success {
		return false
	}
	addresses, err := unix.Mmap(-1, 0, a.Bytes+alignment, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|noReserve)
	if err != nil {
		b.BufferFree(mem)
		return false
	}
	a.Base = driver.Ptr(unsafe.Pointer(unsafe.SliceData(addresses)))
	a.buf = mem
	a.free = func() {
		b.BufferFree(mem)
		_ = unix.Munmap(addresses)
	}
	return true
}

// mapBuffer makes pinned memory of a buffer of the host's, which stays mapped. Kernels can't touch it.
func (b *dev) mapBuffer(op string, a *allocation) error {
	r := new(abi.Result)
	bytes := uintptr(a.Bytes)
	mem := b.BufferMake(b.space.h, abi.MemReadWrite|abi.MemAllocHostPtr, bytes, 0, r)
	if err := b.result(op, "clCreateBuffer", *r); err != nil {
		return err
	}
	s, err := b.queue(op, 0)
	if err != nil {
		b.BufferFree(mem)
		return err
	}
	s.Lock()
	defer s.Unlock()
	defer s.end(op)
	s.dirty = true
	at := b.BufferMap(s.q, mem, 0, abi.MapRead|abi.MapWrite, 0, bytes, 0, nil, nil, r)
	if err = b.result(op, "clEnqueueMapBuffer", *r); err == nil {
		err = s.wait(op)
	}
	if err != nil {
		b.BufferFree(mem)
		return err
	}
	a.Base = driver.Ptr(at)
	a.free = func() {
		if s, err := b.queue(op, 0); err == nil {
			s.Lock()
			defer s.Unlock()
			s.dirty = true
			b.BufferUnmap(s.q, mem, at, 0, nil, nil)
			_ = s.end(op)
		}
		b.BufferFree(mem)
	}
	return nil
}
