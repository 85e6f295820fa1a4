package accinte

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/internal/engine"
)

// pools are the pools of all devices.
type pools struct {
	mu   sync.Mutex
	last device.PoolHandle
	m    map[device.PoolHandle]*pool
}

// pool holds pieces of a device's memory, in use or kept. Its lock is pools.mu.
type pool struct {
	handle        device.PoolHandle
	dev           int
	limit, retain int64
	used, held    int64 // bytes handed out; bytes of the device's memory, those included
	kept          []*piece
	destroyed     bool
}

// piece is memory of the device that a pool holds: size bytes at a place of the arena.
type piece struct {
	at, size int
	stream   device.StreamHandle // behind whose work it was freed
	free     bool                // that work is done
}

// loan marks an allocation as a pool's.
type loan struct {
	pool  *pool
	piece *piece
}

// PoolCreate is [device.Pools].PoolCreate.
func (d *Driver) PoolCreate(dev int, limit, retain int64) (device.PoolHandle, error) {
	if err := d.Check("create pool", dev); err != nil {
		return 0, err
	}
	if limit < 0 || retain < 0 {
		return 0, device.Errorf(device.ErrInvalidArgument, d.name(dev), "create pool", "a limit of %d bytes, %d kept", limit, retain)
	}
	ps := &d.pools
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.m == nil {
		ps.m = map[device.PoolHandle]*pool{}
	}
	ps.last++
	ps.m[ps.last] = &pool{handle: ps.last, dev: dev, limit: limit, retain: retain}
	return ps.last, nil
}

func (d *Driver) pool(op string, h device.PoolHandle) (*pool, error) {
	if p := d.pools.m[h]; p != nil && !p.destroyed {
		return p, nil
	}
	return nil, device.Errorf(device.ErrInvalidHandle, d.opts.Name, op, "%#x is no pool, or was destroyed", uintptr(h))
}

// PoolDestroy is [device.Pools].PoolDestroy.
func (d *Driver) PoolDestroy(h device.PoolHandle) error {
	d.pools.mu.Lock()
	defer d.pools.mu.Unlock()
	p, err := d.pool("destroy pool", h)
	if err != nil {
		return err
	}
	p.destroyed = true
	d.trim(p)
	return nil
}

// PoolInfo is [device.Pools].PoolInfo.
func (d *Driver) PoolInfo(h device.PoolHandle) (used, held int64, err error) {
	d.pools.mu.Lock()
	defer d.pools.mu.Unlock()
	p, err := d.pool("pool info", h)
	if err != nil {
		return 0, 0, err
	}
	return p.used, p.held, nil
}

// PoolMalloc is [device.Pools].PoolMalloc.
func (d *Driver) PoolMalloc(h device.PoolHandle, s device.StreamHandle, bytes int) (device.Ptr, error) {
	dev, err := d.StreamDevice("allocate from pool", s)
	if err != nil {
		return 0, err
	}
	d.pools.mu.Lock()
	defer d.pools.mu.Unlock()
	p, err := d.pool("allocate from pool", h)
	if err != nil {
		return 0, err
	}
	if dev != p.dev {
		return 0, device.Errorf(device.ErrWrongDevice, d.name(p.dev), "allocate from pool", "the stream is of device %d", dev)
	}
	if bytes <= 0 {
		return 0, device.Errorf(device.ErrInvalidArgument, d.name(p.dev), "allocate from pool", "%d bytes", bytes)
	}
	got, err := d.take(p, s, bytes)
	if err != nil {
		return 0, err
	}
	p.used += int64(got.size)
	a := d.arenas[p.dev]
	ptr := device.Ptr(uintptr(a.mirror)).Add(got.at)
	d.space.Add(&engine.Alloc{Base: ptr, Bytes: bytes, View: unsafe.Add(a.seg.Base(), got.at), Type: device.DeviceMemory, Device: p.dev, Owner: &loan{p, got}})
	return ptr, nil
}

// take finds a piece for bytes that s may use from now on: one that is kept, or new memory.
func (d *Driver) take(p *pool, s device.StreamHandle, bytes int) (*piece, error) {
	a := d.arenas[p.dev]
	if bytes > a.limit {
		return nil, d.outOfMemory(p.dev, bytes)
	}
	size := roundUp(bytes, pageSize)
	best := -1
	for i, k := range p.kept {
		if k.size >= size && k.size <= 2*size && (k.stream == s || k.free) && (best < 0 || k.size < p.kept[best].size) {
			best = i
		}
	}
	if best >= 0 {
		got := p.kept[best]
		p.kept = slices.Delete(p.kept, best, best+1)
		return got, nil
	}
	if p.limit > 0 && p.held+int64(size) > p.limit {
		d.release(p, p.held+int64(size)-p.limit)
		if p.held+int64(size) > p.limit {
			return nil, device.Errorf(device.ErrOutOfMemory, d.name(p.dev), "allocate from pool", "%d bytes asked for, the pool holds %d of %d", bytes, p.held, p.limit)
		}
	}
	at, ok := a.place(size)
	if !ok {
		return nil, device.Errorf(device.ErrOutOfMemory, d.name(p.dev), "allocate from pool", "no range of %d addresses is free", size)
	}
	enough, err := a.commit(at, size)
	if err == nil && !enough {
		d.release(p, int64(size))
		if enough, err = a.commit(at, size); err == nil && !enough {
			err = fmt.Errorf("%d bytes asked for, %d of %d are free", bytes, a.available(), a.limit)
		}
	}
	if err != nil {
		a.unplace(at, size)
		return nil, device.Errorf(device.ErrOutOfMemory, d.name(p.dev), "allocate from pool", "%w", err)
	}
	p.held += int64(size)
	return &piece{at: at, size: size}, nil
}

// PoolFree is [device.Pools].PoolFree.
func (d *Driver) PoolFree(ptr device.Ptr, s device.StreamHandle) error {
	dev, err := d.StreamDevice("free to pool", s)
	if err != nil {
		return err
	}
	if ptr == 0 {
		return nil
	}
	var l *loan
	err = d.space.Remove("free to pool", ptr, func(a *engine.Alloc) error {
		ok := false
		if l, ok = a.Owner.(*loan); !ok {
			return device.Errorf(device.ErrInvalidPointer, d.opts.Name, "free to pool", "%v is not of a pool", ptr)
		}
		if dev != l.pool.dev {
			return device.Errorf(device.ErrWrongDevice, d.name(l.pool.dev), "free to pool", "the stream is of device %d", dev)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p := l.pool
	k := &piece{at: l.piece.at, size: l.piece.size, stream: s} // a new one, which only this free's end is about
	d.pools.mu.Lock()
	defer d.pools.mu.Unlock()
	p.used -= int64(k.size)
	p.kept = append(p.kept, k)
	k.free = !d.After(s, func() {
		d.pools.mu.Lock()
		defer d.pools.mu.Unlock()
		k.free = true
		d.trim(p)
	})
	d.trim(p)
	return nil
}

// trim gives memory back to the device that the pool need not keep, and ends a destroyed pool. The lock is held.
func (d *Driver) trim(p *pool) {
	retain := p.retain
	if p.destroyed {
		retain = 0
	}
	if excess := p.held - p.used - retain; excess > 0 {
		d.release(p, excess)
	}
	if p.destroyed && p.held == 0 {
		delete(d.pools.m, p.handle)
	}
}

// release gives kept memory back to the device, oldest first, until it is want bytes. The lock is held.
func (d *Driver) release(p *pool, want int64) {
	a := d.arenas[p.dev]
	p.kept = slices.DeleteFunc(p.kept, func(k *piece) bool {
		if want <= 0 || !k.free {
			return false
		}
		want -= int64(k.size)
		p.held -= int64(k.size)
		_ = a.decommit(k.at, k.size) // of what was committed: can fail only by a bug
		a.unplace(k.at, k.size)
		return true
	})
}
