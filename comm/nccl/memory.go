package nccl

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cache"
)

// A pool is device memory that the library has allocated for tensors, and that its communicators register. Each
// registers new segments when it enqueues an operation, and no segment goes back to the library before all have
// deregistered it. The device's allocator divides it, and tracks which streams use it.
type pool struct {
	lib *Library
	dev *device.Device
	id  cache.PoolID

	mu       sync.Mutex
	segments map[uintptr]segment // by address
	version  uint64              // counts their changes
	ranks    map[*rank]bool
	exposed  map[uintptr]*exposure // what communicators have windows of
}

// segment is a piece of the library's memory.
type segment struct {
	bytes int64
	since uint64 // the pool's version with which it came: the order of allocations, which is alike on all ranks
}

// exposure is of a segment of which communicators have windows: it stays until all are deregistered.
type exposure struct {
	windows int
	freed   bool // by its user
}

// poolOf returns the library's memory of a device.
func (l *Library) poolOf(dev *device.Device) (*pool, error) {
	if err := l.caps.Need("allocation"); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pools[dev]; p != nil {
		return p, nil
	}
	c, err := dev.Allocator()
	if err != nil {
		return nil, err
	}
	p := &pool{lib: l, dev: dev, segments: map[uintptr]segment{}, ranks: map[*rank]bool{},
		exposed: map[uintptr]*exposure{}}
	p.id = c.NewPool(p)
	if l.pools == nil {
		l.pools = map[*device.Device]*pool{}
	}
	l.pools[dev] = p
	return p, nil
}

// Pool implements backend.Pooled.
func (r *rank) Pool() (cache.PoolID, error) {
	p, err := r.lib.poolOf(r.dev)
	if err != nil {
		return cache.PoolID{}, &backend.UnsupportedError{Where: r.In("allocator"), Detail: err.Error()}
	}
	return p.id, nil
}

// openPool is of a backend before there is a communicator.
func openPool(family string, dev *device.Device) (cache.PoolID, error) {
	p, err := familyPool(family, dev)
	if err != nil {
		return cache.PoolID{}, err
	}
	return p.id, nil
}

func familyPool(family string, dev *device.Device) (*pool, error) {
	lib, err := Load(family, "")
	if err != nil {
		return nil, err
	}
	return lib.poolOf(dev)
}

// Alloc gives memory of the library's of a family on a device, for allocators beside the device's own. Every
// communicator there registers it before its next operation.
func Alloc(family string, dev *device.Device, bytes int64) (uintptr, error) {
	p, err := familyPool(family, dev)
	if err != nil {
		return 0, err
	}
	return p.Alloc(bytes)
}

// Free takes back what Alloc gave, when nothing uses it any more.
func Free(family string, dev *device.Device, addr uintptr) error {
	p, err := familyPool(family, dev)
	if err != nil {
		return err
	}
	p.mu.Lock()
	_, ours := p.segments[addr]
	p.mu.Unlock()
	if !ours {
		return fmt.Errorf("%w: %#x is no memory that %v has given out on %s", backend.ErrInvalidArgument, addr, p.lib,
			dev.Name())
	}
	return p.Free(addr)
}

// Alloc implements cache.Source.
func (p *pool) Alloc(size int64) (uintptr, error) {
	unbind, err := p.dev.Bind()
	if err != nil {
		return 0, err
	}
	defer unbind()
	at := new(uintptr)
	if err := p.lib.failed("ncclMemAlloc", p.lib.MemAlloc(at, uint64(size)), 0); err != nil {
		return 0, fmt.Errorf("%w: %w", cache.ErrOutOfMemory, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version++
	p.segments[*at] = segment{size, p.version}
	return *at, nil
}

// Free implements cache.Source. The memory goes when no communicator knows it any more: one may be in the middle of
// something.
func (p *pool) Free(addr uintptr) error {
	p.mu.Lock()
	delete(p.segments, addr)
	p.version++
	var ranks []*rank
	for r := range p.ranks {
		ranks = append(ranks, r)
	}
	p.mu.Unlock()
	go func() {
		for _, r := range ranks {
			r.forget(addr)
		}
		p.mu.Lock()
		e := p.exposed[addr]
		if e != nil {
			e.freed = true
		}
		p.mu.Unlock()
		if e == nil {
			p.giveBack(addr)
		}
	}()
	return nil
}

func (p *pool) giveBack(addr uintptr) {
	if unbind, err := p.dev.Bind(); err == nil {
		p.lib.MemFree(addr)
		unbind()
	}
}

// expose notes that a communicator has a window of a segment.
func (p *pool) expose(addr uintptr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exposed[addr] == nil {
		p.exposed[addr] = &exposure{}
	}
	p.exposed[addr].windows++
}

// cover ends what expose began; the last one gives memory back whose user has freed it.
func (p *pool) cover(addr uintptr) {
	p.mu.Lock()
	e := p.exposed[addr]
	e.windows--
	last := e.windows == 0
	if last {
		delete(p.exposed, addr)
	}
	p.mu.Unlock()
	if last && e.freed {
		p.giveBack(addr)
	}
}

// known are the segments that a communicator has registered.
type known struct {
	pool    *pool // nil: it registers none
	version uint64
	handles map[uintptr]uintptr
}

// learn registers memory of the library's pool that the communicator hasn't registered yet. The caller holds the
// lock. Memory that the library refuses to register works like any other.
func (r *rank) learn() {
	k := &r.known
	if k.pool == nil || r.lib.CommRegister == nil {
		return
	}
	k.pool.mu.Lock()
	defer k.pool.mu.Unlock()
	if k.version == k.pool.version {
		return
	}
	k.version = k.pool.version
	for addr, s := range k.pool.segments {
		handle := new(uintptr)
		if _, has := k.handles[addr]; !has &&
			r.lib.CommRegister(r.c, addr, uint64(s.bytes), handle) == abi.Success {
			k.handles[addr] = *handle
		}
	}
}

// forget deregisters a segment that goes.
func (r *rank) forget(addr uintptr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if handle, has := r.known.handles[addr]; has {
		delete(r.known.handles, addr)
		if r.c == 0 {
			return
		}
		if unbind, err := r.dev.Bind(); err == nil {
			r.lib.CommDeregister(r.c, handle)
			unbind()
		}
	}
}

// meetPool begins to know the library's memory, if it has any.
func (r *rank) meetPool() {
	p, err := r.lib.poolOf(r.dev)
	if err != nil {
		return
	}
	r.known = known{pool: p, handles: map[uintptr]uintptr{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ranks[r] = true
}

// leavePool ends that, and returns what was registered. The caller has the lock.
func (r *rank) leavePool() (handles []uintptr) {
	p := r.known.pool
	if p == nil {
		return nil
	}
	p.mu.Lock()
	delete(p.ranks, r)
	p.mu.Unlock()
	handles = slices.Collect(maps.Values(r.known.handles))
	r.known.handles = nil
	return handles
}
