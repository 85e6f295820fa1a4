package tensor

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/cpu"
	"github.com/chorus-comms/chorus/dtype"
)

// place is where a storage lies that isn't ordinary host memory: on a device, or pinned.
type place struct {
	rt      *device.Runtime
	dev     *device.Device // nil: pinned host memory
	stream  *device.Stream // that the allocator gave the memory for; nil if it isn't the allocator's
	free    func() error   // nil if the memory isn't the tensor's
	freed   atomic.Bool
	cleanup runtime.Cleanup
	view    atomic.Pointer[storage] // the same memory as engines of this process see it; made when first needed
}

// EmptyOn makes a tensor on a device, from its caching allocator, for work on the device's current stream
// ([device.WithStream]), with undefined contents. It's given back when the last tensor over it has become unreachable,
// or by [Tensor.Free]; work that was enqueued before may still use it.
//
// On a device whose memory the host may touch ([device.Properties].HostAccess) it's [EmptyShared].
func EmptyOn(ctx context.Context, d *device.Device, dt dtype.DType, shape ...int) (*Tensor, error) {
	return EmptyIn(ctx, d, cache.PoolID{}, dt, shape...)
}

// EmptyIn is EmptyOn with memory of one of the device's pools ([cache.Cache.NewPool]).
func EmptyIn(ctx context.Context, d *device.Device, pool cache.PoolID, dt dtype.DType, shape ...int) (*Tensor,
	error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	if d.Properties().HostAccess {
		return EmptyShared(dt, shape...)
	}
	s, err := d.CurrentStream(ctx)
	if err != nil {
		return nil, err
	}
	bytes := n * dt.Size()
	p, err := d.AllocIn(pool, bytes, s)
	if err != nil {
		return nil, err
	}
	pl := &place{rt: d.Runtime(), dev: d, stream: s}
	return wrap(pl.storage(p, bytes, func() error { return d.Dealloc(p) }), dt, shape), nil
}

// ZerosOn is EmptyOn, with zeros enqueued on the current stream.
func ZerosOn(ctx context.Context, d *device.Device, dt dtype.DType, shape ...int) (*Tensor, error) {
	if d.Properties().HostAccess {
		return ZerosShared(dt, shape...)
	}
	t, err := EmptyOn(ctx, d, dt, shape...)
	if err != nil {
		return nil, err
	}
	return t, Fill(ctx, t, uint8(0))
}

// EmptyPinned makes a tensor in pinned host memory of a driver: the host may touch it, and [Copy] between it and a
// device doesn't wait. Its contents are undefined.
func EmptyPinned(rt *device.Runtime, dt dtype.DType, shape ...int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	bytes := n * dt.Size()
	b, err := rt.Pin(max(bytes, 1))
	if err != nil {
		return nil, err
	}
	pl := &place{rt: rt}
	return wrap(pl.storage(b.Ptr(), bytes, b.Free), dt, shape), nil
}

// FromDevice wraps device memory that the caller has allocated, and frees, as a contiguous tensor.
func FromDevice(dt dtype.DType, d *device.Device, p device.Ptr, shape ...int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	bytes := n * dt.Size()
	if err := onDevice(d, p, bytes); err != nil {
		return nil, err
	}
	if err := checkAligned(dt, pointer(p)); err != nil {
		return nil, err
	}
	if d.Properties().HostAccess {
		return FromPointer(dt, pointer(p), shape...)
	}
	pl := &place{rt: d.Runtime(), dev: d}
	return wrap(pl.storage(p, bytes, nil), dt, shape), nil
}

// onDevice demands that bytes from p are memory of the device.
func onDevice(d *device.Device, p device.Ptr, bytes int) error {
	if bytes == 0 {
		return nil
	}
	at, err := d.Runtime().Driver().Attributes(p)
	switch {
	case err != nil:
		return err
	case at.Type != device.DeviceMemory:
		return device.Errorf(device.ErrWrongKind, d.Name(), "tensor", "%v is %v memory", p, at.Type)
	case at.Device != d.Index():
		return device.Errorf(device.ErrWrongDevice, d.Name(), "tensor", "%v is memory of device %d", p, at.Device)
	case bytes > at.Bytes-int(p-at.Base):
		return device.Errorf(device.ErrOutOfBounds, d.Name(), "tensor", "%d bytes at %v leave the allocation of %d bytes at %v", bytes, p, at.Bytes, at.Base)
	}
	return nil
}

// storage is memory at the place; free gives it back.
func (pl *place) storage(p device.Ptr, bytes int, free func() error) *storage {
	st := &storage{base: pointer(p), bytes: bytes, place: pl}
	if free != nil {
		pl.free = free
		// An error would be one of a driver that was closed before, for which there is nothing to give back.
		pl.cleanup = runtime.AddCleanup(st, func(free func() error) { _ = free() }, free)
	}
	return st
}

// release is Free for memory at a place.
func (pl *place) release() {
	if pl.free != nil && !pl.freed.Swap(true) {
		pl.cleanup.Stop()
		_ = pl.free()
	}
}

// pointer makes an address of memory that isn't Go's a pointer. The detour keeps vet from taking it for arithmetic.
func pointer(p device.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// host is what tensors are on that are on no other device.
var host = cpu.Device()

// On is the device whose memory this is. Memory that the host may touch, pinned memory too, is on the device "cpu".
func (t *Tensor) On() *device.Device {
	if t.OnHost() {
		return host
	}
	return t.store.place.dev
}

// OnHost reports whether this is memory that the host may touch.
func (t *Tensor) OnHost() bool {
	pl := t.store.place
	return pl == nil || pl.dev == nil
}

// Pinned reports whether this is pinned host memory of the runtime's driver.
func (t *Tensor) Pinned(rt *device.Runtime) bool {
	pl := t.store.place
	return pl != nil && pl.dev == nil && pl.rt == rt
}

// devicePtr is the address of the first element, as a device's.
func (t *Tensor) devicePtr() device.Ptr { return device.Ptr(uintptr(t.ptr)) }

// span is the memory from the first element to the end of the last.
func (t *Tensor) span() device.Span { return device.Span{Ptr: t.devicePtr(), Bytes: t.extent()} }

// UsedBy tells the allocator that work which is enqueued on s uses the tensor, so that its memory isn't given to others
// before that work is done, even if the tensor is freed. It does nothing for host memory, and for the stream that the
// tensor was made for.
func (t *Tensor) UsedBy(s *device.Stream) error {
	pl := t.store.place
	switch {
	case t.OnHost():
		return nil
	case pl.stream == nil: // of the allocator's caller
		return pl.dev.Used(device.Ptr(uintptr(t.store.base)), s)
	case pl.stream.Equal(s):
		return nil
	}
	return pl.dev.RecordStream(device.Ptr(uintptr(t.store.base)), s)
}

// Hold keeps the allocator from giving the tensor's memory to others until release is called, even if the tensor is
// freed before: for work that will be enqueued. It does nothing for host memory.
func (t *Tensor) Hold() (release func() error) {
	if t.OnHost() {
		return func() error { return nil }
	}
	return t.store.place.dev.Hold(device.Ptr(uintptr(t.store.base)))
}

// EngineView is the tensor by addresses that engines of this process, kernels and communicators, can follow; of a host
// tensor it is the tensor itself. It's for code that runs in a stream's order: nothing else knows when the elements are
// there. It keeps the memory, and is good until that is freed. A driver that isn't [device.HostKernels] has none:
// ErrUnsupported.
func (t *Tensor) EngineView() (*Tensor, error) {
	if t.OnHost() {
		return t, nil
	}
	d, pl := t.On(), t.store.place
	st := pl.view.Load()
	if st == nil {
		k, err := engines(d)
		if err != nil {
			return nil, err
		}
		st = &storage{bytes: t.store.bytes, of: t.store}
		if st.bytes > 0 {
			p, err := k.View(device.Ptr(uintptr(t.store.base)), st.bytes)
			if err != nil {
				return nil, err
			}
			st.base = p
		}
		if !pl.view.CompareAndSwap(nil, st) { // one for all, so that views know their neighbours
			st = pl.view.Load()
		}
	}
	return newTensor(st, t.dt, t.shape, t.strides, t.offset), nil
}

// engines returns how engines of this process touch the memory of a device.
func engines(d *device.Device) (device.HostKernels, error) {
	k, ok := d.Runtime().Driver().(device.HostKernels)
	if !ok {
		return nil, device.Errorf(device.ErrUnsupported, d.Name(), "", "the driver's memory can't be touched by engines of the process")
	}
	return k, nil
}

// hostAccess is the error of code of the host that wants to touch the elements; nil if it may.
func (t *Tensor) hostAccess(op string) error {
	if t.OnHost() {
		return nil
	}
	return device.Errorf(device.ErrHostAccess, t.Device(), op,
		"%v%v is on a device: Copy, Fill and To, which take a context, go there", t.dt, t.shape)
}

// over is a tensor of t's type and layout over other memory of t's extent.
func (t *Tensor) over(p unsafe.Pointer) *Tensor {
	return newTensor(&storage{base: p, bytes: t.extent()}, t.dt, slices.Clone(t.shape), t.strides, 0)
}
