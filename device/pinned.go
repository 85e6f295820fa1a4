package device

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/device/cache"
)

// Pinned is pinned host memory: copies between it and devices can be under way while the host does other things.
type Pinned struct {
	host *cache.Host
	p    Ptr
	n    int
	once sync.Once
	err  error
}

// Pin allocates pinned host memory of n bytes, at least one, with undefined contents. It comes from a cache that keeps
// what is freed, with the settings of PYTORCH_ALLOC_CONF, in blocks of powers of two by default.
func (rt *Runtime) Pin(n int) (*Pinned, error) {
	h, err := rt.pinned.get(rt)
	if err != nil {
		return nil, err
	}
	p, err := h.Malloc(int64(n))
	if err == nil && p == 0 {
		err = cache.ErrInvalidArgument
	}
	if err != nil {
		return nil, cacheError(rt.Name(), "allocate host memory", err)
	}
	return &Pinned{host: h, p: Ptr(p), n: n}, nil
}

// Ptr is the address, for [Stream.Copy].
func (b *Pinned) Ptr() Ptr { return b.p }

// Bytes is the memory, good until Free.
func (b *Pinned) Bytes() []byte { return unsafe.Slice((*byte)(pointer(b.p)), b.n) }

// Free returns the memory. Copies and kernels that were enqueued before still use it; neither the host nor a graph may.
// Repeated calls return the first result.
func (b *Pinned) Free() error {
	b.once.Do(func() { b.err = b.host.Free(uintptr(b.p)) })
	return b.err
}

// PinnedStats returns the figures of the cache of pinned memory; all are 0 before its first use.
func (rt *Runtime) PinnedStats() cache.HostStats {
	if h := rt.pinned.host.Load(); h != nil {
		return h.Stats()
	}
	return cache.HostStats{}
}

// ResetPeakPinnedStats makes the present figures the peaks.
func (rt *Runtime) ResetPeakPinnedStats() {
	if h := rt.pinned.host.Load(); h != nil {
		h.ResetPeakStats()
	}
}

// ResetAccumulatedPinnedStats makes the sums and the counts 0.
func (rt *Runtime) ResetAccumulatedPinnedStats() {
	if h := rt.pinned.host.Load(); h != nil {
		h.ResetAccumulatedStats()
	}
}

// EmptyPinnedCache gives unused pinned memory back to the driver.
func (rt *Runtime) EmptyPinnedCache() error {
	h := rt.pinned.host.Load()
	if h == nil {
		return nil
	}
	return cacheError(rt.Name(), "empty cache of host memory", h.EmptyCache())
}

// pinnedCache is a runtime's cache of pinned memory, made at its first use.
type pinnedCache struct {
	mu   sync.Mutex
	host atomic.Pointer[cache.Host]
}

func (c *pinnedCache) get(rt *Runtime) (*cache.Host, error) {
	if h := c.host.Load(); h != nil {
		return h, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.host.Load(); h != nil {
		return h, nil
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return nil, Errorf(ErrInvalidArgument, rt.Name(), "allocate host memory", "%w", err)
	}
	h, err := cache.NewHost(pinnedDriver{cacheEvents{rt, cfg.Timeout}}, cfg.DeviceAllocator())
	if err != nil {
		return nil, cacheError(rt.Name(), "allocate host memory", err)
	}
	c.host.Store(h)
	return h, nil
}

// uses tells the cache of pinned memory what work of the stream uses, of which some may be pinned.
func (s *Stream) uses(ptrs ...Ptr) {
	h := s.dev.rt.pinned.host.Load()
	if h == nil {
		return
	}
	for _, p := range ptrs {
		h.RecordStream(uintptr(p), cache.Stream(s.h))
	}
}

// pinnedDriver is a driver's pinned memory as the cache sees it.
type pinnedDriver struct{ cacheEvents }

func (d pinnedDriver) Alloc(size int64) (uintptr, error) {
	p, err := d.rt.drv.MallocHost(int(size))
	return uintptr(p), cacheOOM(err)
}

func (d pinnedDriver) Free(addr uintptr) error { return d.rt.drv.FreeHost(Ptr(addr)) }

func (d pinnedDriver) Record(s cache.Stream) (cache.Event, error) {
	if g, ok := d.rt.drv.(Graphs); ok {
		if st, err := g.CaptureStatus(StreamHandle(s)); err != nil || st != NotCapturing {
			return 0, errors.Join(err, cache.ErrUnknownStream) // the event would be one of the capture
		}
	}
	return d.record(0, s)
}

// cacheEvents are the events of a driver as a cache sees them.
type cacheEvents struct {
	rt      *Runtime
	timeout time.Duration // of a wait, which the cache gives no limit
}

// record makes an event, of whichever device the stream is of: first is the likely one.
func (c cacheEvents) record(first int, s cache.Stream) (cache.Event, error) {
	drv := c.rt.drv
	record := func(dev int) (cache.Event, error) {
		e, err := drv.EventCreate(dev, false)
		if err != nil {
			return 0, err
		}
		if err := drv.EventRecord(e, StreamHandle(s)); err != nil {
			return 0, errors.Join(err, drv.EventDestroy(e))
		}
		return cache.Event(e), nil
	}
	e, err := record(first)
	for dev := 0; errors.Is(err, ErrWrongDevice) && dev < len(c.rt.devices); dev++ {
		e, err = record(dev)
	}
	return e, err
}

// Query and Wait are about whether work is over; that it failed is its stream's to say.
func (c cacheEvents) Query(e cache.Event) (bool, error) {
	done, err := c.rt.drv.EventQuery(EventHandle(e))
	if errors.Is(err, ErrFailed) {
		err = nil
	}
	return done, err
}

func (c cacheEvents) Wait(e cache.Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	if err := c.rt.drv.EventSynchronize(ctx, EventHandle(e)); !errors.Is(err, ErrFailed) {
		return err
	}
	return nil
}

func (c cacheEvents) Release(e cache.Event) { _ = c.rt.drv.EventDestroy(EventHandle(e)) } // which record made
