package device

import (
	"errors"
	"fmt"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/driver"
)

// Allocator returns the device's caching allocator, making it when it's first asked for, with the settings of
// PYTORCH_ALLOC_CONF. Its addresses are [Ptr], and its streams [StreamHandle], as numbers. [Device.Alloc] is the
// ordinary way to it.
func (d *Device) Allocator() (*cache.Cache, error) {
	if c := d.cache.Load(); c != nil {
		return c, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.cache.Load(); c != nil {
		return c, nil
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, Errorf(ErrInvalidArgument, d.Name(), "allocator", "%w", err)
	}
	var drv cache.Driver = &cacheDriver{cacheEvents{d.rt, cfg.Timeout}, d}
	if r, ok := d.rt.drv.(driver.Reserver); ok {
		g, err := r.Granularity(d.index)
		if err != nil {
			return nil, err
		}
		drv = &cacheReserver{cacheDriver{cacheEvents{d.rt, cfg.Timeout}, d}, r, int64(g)}
	}
	settings := cfg.DeviceAllocator()
	if _, ok := drv.(cache.Reserver); !ok {
		settings.Expandable = false // which PyTorch, whose variable it is, does on such a platform too
	}
	c, err := cache.New(drv, cache.Options{Allocator: settings, Device: d.index})
	if err != nil {
		return nil, Errorf(ErrInvalidArgument, d.Name(), "allocator", "%w", err)
	}
	d.cache.Store(c)
	return c, nil
}

// Alloc returns n bytes of device memory from the caching allocator, for work on s (nil: the default stream) from now
// on. No bytes are the null pointer. [Device.Dealloc] gives them back.
func (d *Device) Alloc(n int, s *Stream) (Ptr, error) { return d.AllocIn(cache.PoolID{}, n, s) }

// AllocIn is Alloc from a pool of the allocator's NewPool.
func (d *Device) AllocIn(pool cache.PoolID, n int, s *Stream) (Ptr, error) {
	c, err := d.Allocator()
	if err != nil {
		return 0, err
	}
	if s == nil {
		if s, err = d.DefaultStream(); err != nil {
			return 0, err
		}
	}
	if s.dev != d {
		return 0, Errorf(ErrWrongDevice, d.Name(), "allocate", "%v is of %s", s, s.dev.Name())
	}
	p, err := c.MallocIn(pool, int64(n), cache.Stream(s.h))
	return Ptr(p), d.cacheError("allocate", err)
}

// Dealloc gives memory of Alloc back: to the stream that it was allocated for at once, behind the work that it has, and
// to others when the streams of RecordStream are done with it. Null is nothing.
func (d *Device) Dealloc(p Ptr) error {
	if p == 0 {
		return nil
	}
	c, err := d.Allocator()
	if err != nil {
		return err
	}
	return d.cacheError("free", c.Free(uintptr(p)))
}

// RecordStream tells the allocator that work on s uses memory that was allocated for another stream.
func (d *Device) RecordStream(p Ptr, s *Stream) error {
	if p == 0 {
		return nil
	}
	c, err := d.Allocator()
	if err != nil {
		return err
	}
	return d.cacheError("record stream", c.RecordStream(uintptr(p), cache.Stream(s.h)))
}

// Used is RecordStream of the memory that an address lies in; nothing if it isn't the allocator's.
func (d *Device) Used(p Ptr, s *Stream) error {
	if c := d.cache.Load(); c != nil {
		return d.cacheError("record stream", c.Used(uintptr(p), cache.Stream(s.h)))
	}
	return nil
}

// Hold keeps the memory of the allocator that an address lies in until release is called, even if it's freed before.
func (d *Device) Hold(p Ptr) (release func() error) {
	if c := d.cache.Load(); c != nil {
		return c.Hold(uintptr(p))
	}
	return func() error { return nil }
}

// EmptyCache gives unused cached memory back to the driver.
func (d *Device) EmptyCache() error {
	c := d.cache.Load()
	if c == nil {
		return nil
	}
	return d.cacheError("empty cache", c.EmptyCache())
}

// MemoryStats returns the allocator's figures; all are 0 before its first use.
func (d *Device) MemoryStats() cache.Stats {
	if c := d.cache.Load(); c != nil {
		return c.Stats()
	}
	return cache.Stats{}
}

// ResetPeakMemoryStats lets the peaks begin anew at what is now in use.
func (d *Device) ResetPeakMemoryStats() {
	if c := d.cache.Load(); c != nil {
		c.ResetPeakStats()
	}
}

// ResetAccumulatedMemoryStats lets the counts of what was allocated and freed begin anew at 0.
func (d *Device) ResetAccumulatedMemoryStats() {
	if c := d.cache.Load(); c != nil {
		c.ResetAccumulatedStats()
	}
}

func (d *Device) cacheError(op string, err error) error {
	if err == nil {
		return nil // without making up the device's name
	}
	return cacheError(d.Name(), op, err)
}

// cacheError gives an error of an allocator its kind here.
func cacheError(name, op string, err error) error {
	if err == nil {
		return nil
	}
	kind := ErrInternal
	for _, k := range []struct{ from, to error }{
		{cache.ErrOutOfMemory, ErrOutOfMemory}, {cache.ErrDoubleFree, ErrInvalidPointer},
		{cache.ErrInteriorPointer, ErrInvalidPointer},
		{cache.ErrForeignPointer, ErrInvalidPointer}, {cache.ErrUnknownStream, ErrInvalidHandle},
		{cache.ErrInvalidArgument, ErrInvalidArgument},
	} {
		if errors.Is(err, k.from) {
			kind = k.to.(Kind)
			break
		}
	}
	return Errorf(kind, name, op, "%w", err)
}

// cacheDriver is a device as the allocator sees it.
type cacheDriver struct {
	cacheEvents
	d *Device
}

func (c *cacheDriver) Alloc(size int64) (uintptr, error) {
	p, err := c.d.rt.drv.Malloc(c.d.index, int(size))
	return uintptr(p), cacheOOM(err)
}

// cacheOOM makes lack of memory what the allocator knows as that.
func cacheOOM(err error) error {
	if errors.Is(err, ErrOutOfMemory) {
		return fmt.Errorf("%w: %w", cache.ErrOutOfMemory, err)
	}
	return err
}

// Reclaim implements cache.Reclaimer.
func (c *cacheDriver) Reclaim() {
	if r, ok := c.d.rt.drv.(driver.Reclaimer); ok {
		r.Reclaim(c.d.index)
	}
}

func (c *cacheDriver) Free(addr uintptr) error { return c.d.rt.drv.Free(c.d.index, Ptr(addr)) }

// HasStream asks in a way that doesn't disturb a capture.
func (c *cacheDriver) HasStream(s cache.Stream) bool {
	var err error
	if g, ok := c.d.rt.drv.(Graphs); ok {
		_, err = g.CaptureStatus(StreamHandle(s))
	} else {
		_, err = c.d.rt.drv.StreamQuery(StreamHandle(s))
	}
	return !errors.Is(err, ErrInvalidHandle)
}

// Record makes an event on a stream of any device: memory may be used on streams of peers.
func (c *cacheDriver) Record(s cache.Stream) (cache.Event, error) { return c.record(c.d.index, s) }

func (c *cacheDriver) Memory() (free, total int64, err error) { return c.d.MemInfo() }

// cacheReserver is a device that can reserve addresses.
type cacheReserver struct {
	cacheDriver
	r           driver.Reserver
	granularity int64
}

func (c *cacheReserver) Granularity() int64 { return c.granularity }

func (c *cacheReserver) Reserve(size int64) (uintptr, error) {
	p, err := c.r.Reserve(c.d.index, int(size))
	return uintptr(p), cacheOOM(err)
}

func (c *cacheReserver) Unreserve(addr uintptr, _ int64) error { return c.r.Release(Ptr(addr)) }

func (c *cacheReserver) Map(addr uintptr, size int64) error {
	return cacheOOM(c.r.Map(Ptr(addr), int(size)))
}

func (c *cacheReserver) Unmap(addr uintptr, size int64) error {
	return c.r.Unmap(Ptr(addr), int(size))
}
