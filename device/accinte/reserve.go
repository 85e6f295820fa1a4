package accinte

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/engine"
)

// granularity of mapping memory to reserved addresses, as GPUs have it.
const granularity = 2 << 20

// reservations are the ranges of addresses without memory of their own.
type reservations struct {
	mu   sync.Mutex
	list []*reservation
}

// reservation is an allocation with holes.
type reservation struct {
	arena *arena
	at    int // in the arena
	base  driver.Ptr

	mu     sync.Mutex
	mapped []bool // by granule
}

// Granularity is [driver.Reserver].Granularity.
func (d *Driver) Granularity(dev int) (int, error) { return granularity, d.Check("granularity", dev) }

// Reserve is [driver.Reserver].Reserve. bytes is rounded up to the granularity.
func (d *Driver) Reserve(dev int, bytes int) (driver.Ptr, error) {
	if err := d.Check("reserve", dev); err != nil {
		return 0, err
	}
	a := d.arenas[dev]
	if bytes <= 0 || bytes > a.seg.Size() {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name(dev), "reserve", "%d bytes", bytes)
	}
	bytes = roundUp(bytes, granularity)
	at, ok := a.place(bytes)
	if !ok {
		return 0, driver.Errorf(driver.ErrOutOfMemory, d.name(dev), "reserve", "no range of %d addresses is free", bytes)
	}
	r := &reservation{arena: a, at: at, base: driver.Ptr(uintptr(a.mirror)).Add(at), mapped: make([]bool,
		bytes/granularity)}
	d.space.Add(&engine.Alloc{Base: r.base, Bytes: bytes, View: unsafe.Add(a.seg.Base(), at), Type: driver.DeviceMemory,
		Device: dev,
		Mapped: r.around, Release: func() { a.unplace(at, bytes) }})
	d.ranges.mu.Lock()
	defer d.ranges.mu.Unlock()
	d.ranges.list = append(d.ranges.list, r)
	return r.base, nil
}

// around tells whether a range is mapped, and how far the mapped memory around it goes.
func (r *reservation) around(offset, bytes int) (base, size int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lo, hi := offset/granularity, roundUp(offset+max(bytes, 1), granularity)/granularity
	if hi > len(r.mapped) || slices.Contains(r.mapped[lo:hi], false) {
		return 0, 0, false
	}
	for lo > 0 && r.mapped[lo-1] {
		lo--
	}
	for hi < len(r.mapped) && r.mapped[hi] {
		hi++
	}
	return lo * granularity, (hi - lo) * granularity, true
}

func (d *Driver) reservation(op string, p driver.Ptr) (*reservation, error) {
	d.ranges.mu.Lock()
	defer d.ranges.mu.Unlock()
	for _, r := range d.ranges.list {
		if p >= r.base && int(p-r.base) < len(r.mapped)*granularity {
			return r, nil
		}
	}
	return nil, driver.Errorf(driver.ErrInvalidPointer, d.opts.Name, op, "%v is not reserved", p)
}

// granules returns the granules of a range, which must all have the given state.
func (d *Driver) granules(op string, r *reservation, p driver.Ptr, bytes int, state bool) ([]bool, error) {
	offset := int(p - r.base)
	if bytes <= 0 || offset%granularity != 0 || bytes%granularity != 0 {
		return nil, driver.Errorf(driver.ErrInvalidArgument, d.opts.Name, op,
			"%d bytes at %d are not whole units of %d bytes", bytes, offset, granularity)
	}
	if bytes > len(r.mapped)*granularity-offset {
		return nil, driver.Errorf(driver.ErrOutOfBounds, d.opts.Name, op, "%d bytes at %v leave the reservation", bytes, p)
	}
	g := r.mapped[offset/granularity : (offset+bytes)/granularity]
	if slices.Contains(g, !state) {
		return nil, driver.Errorf(driver.ErrInvalidPointer, d.opts.Name, op,
			"not all of %d bytes at %v are as they must be: mapped is %v somewhere", bytes, p, !state)
	}
	return g, nil
}

// Map is [driver.Reserver].Map.
func (d *Driver) Map(p driver.Ptr, bytes int) error {
	r, err := d.reservation("map", p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g, err := d.granules("map", r, p, bytes, false)
	if err != nil {
		return err
	}
	enough, err := r.arena.commit(r.at+int(p-r.base), bytes)
	if err != nil {
		return driver.Errorf(driver.ErrOutOfMemory, d.opts.Name, "map", "the host has no memory for it: %w", err)
	}
	if !enough {
		return driver.Errorf(driver.ErrOutOfMemory, d.opts.Name, "map", "%d bytes asked for, %d of %d are free", bytes,
			r.arena.available(), r.arena.limit)
	}
	for i := range g {
		g[i] = true
	}
	return nil
}

// Unmap is [driver.Reserver].Unmap. Work that uses the memory must be done.
func (d *Driver) Unmap(p driver.Ptr, bytes int) error {
	r, err := d.reservation("unmap", p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g, err := d.granules("unmap", r, p, bytes, true)
	if err != nil {
		return err
	}
	for i := range g {
		g[i] = false
	}
	if err := r.arena.decommit(r.at+int(p-r.base), bytes); err != nil {
		return driver.Errorf(driver.ErrInternal, d.opts.Name, "unmap", "%w", err)
	}
	return nil
}

// Release is [driver.Reserver].Release.
func (d *Driver) Release(p driver.Ptr) error {
	r, err := d.reservation("release", p)
	if err != nil {
		return err
	}
	if r.base != p {
		return driver.Errorf(driver.ErrInvalidPointer, d.opts.Name, "release", "%v lies inside the reservation at %v", p,
			r.base)
	}
	r.mu.Lock()
	busy := slices.Contains(r.mapped, true)
	r.mu.Unlock()
	if busy {
		return driver.Errorf(driver.ErrInvalidArgument, d.opts.Name, "release", "memory is mapped to the reservation at %v",
			p)
	}
	d.ranges.mu.Lock()
	n := len(d.ranges.list)
	d.ranges.list = slices.DeleteFunc(d.ranges.list, func(o *reservation) bool { return o == r })
	gone := len(d.ranges.list) == n
	d.ranges.mu.Unlock()
	if gone {
		return driver.Errorf(driver.ErrInvalidPointer, d.opts.Name, "release", "%v is not reserved", p)
	}
	return d.space.Remove("release", p, func(*engine.Alloc) error { return nil })
}
