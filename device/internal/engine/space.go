package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

// Alloc is an allocation that a driver knows of.
type Alloc struct {
	Base    driver.Ptr
	Bytes   int
	View    unsafe.Pointer // where this process's engines touch it
	Type    driver.MemoryType
	Device  int
	Remote  bool
	Release func() // called once it has been removed and no task holds it any more

	// Mapped tells of an allocation with holes which range is present; nil if it has none.
	Mapped func(offset, bytes int) (base, size int, ok bool)

	holds atomic.Int64 // one for being in the space, and one for each task that uses it
}

// drop lets go of the allocation.
func (a *Alloc) drop() {
	if a != nil && a.holds.Add(-1) == 0 && a.Release != nil {
		a.Release()
	}
}

// Space is what a driver's pointers mean: its allocations by address.
type Space struct {
	// Owned reports whether an address is one that only device memory can have, so that it isn't taken for host memory
	// when nothing is allocated there; nil: there are none such.
	Owned func(p driver.Ptr) bool

	name   string
	mu     sync.RWMutex
	allocs []*Alloc // ascending by Base, not overlapping
}

// search returns the position of the first allocation that begins above p.
func (sp *Space) search(p driver.Ptr) int {
	lo, hi := 0, len(sp.allocs)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); sp.allocs[mid].Base <= p {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Add makes an allocation known.
func (sp *Space) Add(a *Alloc) {
	a.holds.Store(1)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.allocs = slices.Insert(sp.allocs, sp.search(a.Base), a)
}

// Remove forgets the allocation that begins at p, if check has nothing against it; its memory is released when the last
// task that uses it is done. op names the call in errors.
func (sp *Space) Remove(op string, p driver.Ptr, check func(a *Alloc) error) error {
	sp.mu.Lock()
	i := sp.search(p) - 1
	if i < 0 || !sp.allocs[i].contains(p) {
		sp.mu.Unlock()
		return driver.Errorf(driver.ErrInvalidPointer, sp.name, op, "%v is not allocated, or was freed before", p)
	}
	a := sp.allocs[i]
	if a.Base != p {
		sp.mu.Unlock()
		return driver.Errorf(driver.ErrInvalidPointer, sp.name, op, "%v lies %d bytes inside the allocation at %v", p,
			p-a.Base, a.Base)
	}
	if err := check(a); err != nil {
		sp.mu.Unlock()
		return err
	}
	sp.allocs = slices.Delete(sp.allocs, i, i+1)
	sp.mu.Unlock()
	a.drop()
	return nil
}

// Drain removes all allocations, as a driver that closes does.
func (sp *Space) Drain() {
	sp.mu.Lock()
	all := sp.allocs
	sp.allocs = nil
	sp.mu.Unlock()
	for _, a := range all {
		a.drop()
	}
}

func (a *Alloc) contains(p driver.Ptr) bool {
	return p >= a.Base && uintptr(p-a.Base) < uintptr(a.Bytes)
}

// find returns the allocation that p lies in, or nil. The lock is held.
func (sp *Space) find(p driver.Ptr) *Alloc {
	if i := sp.search(p) - 1; i >= 0 && sp.allocs[i].contains(p) {
		return sp.allocs[i]
	}
	return nil
}

// Attributes is [driver.Memory].Attributes.
func (sp *Space) Attributes(p driver.Ptr) (driver.Attributes, error) {
	if p == 0 {
		return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, sp.name, "attributes", "null")
	}
	sp.mu.RLock()
	defer sp.mu.RUnlock()
	a := sp.find(p)
	if a == nil {
		if sp.Owned != nil && sp.Owned(p) {
			return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, sp.name, "attributes",
				"%v is a device address, but nothing is allocated there", p)
		}
		return driver.Attributes{Type: driver.Unmanaged, Device: -1, Base: p}, nil
	}
	at := driver.Attributes{Type: a.Type, Device: -1, Base: a.Base, Bytes: a.Bytes, Remote: a.Remote}
	if a.Type == driver.DeviceMemory {
		at.Device = a.Device
	}
	if a.Mapped != nil {
		base, size, ok := a.Mapped(int(p-a.Base), 1)
		if !ok {
			return driver.Attributes{}, driver.Errorf(driver.ErrInvalidPointer, sp.name, "attributes",
				"%v is reserved, but nothing is mapped there", p)
		}
		at.Base, at.Bytes = a.Base.Add(base), size
	}
	return at, nil
}

// view is a range of memory as an engine touches it. It holds its allocation until dropped.
type view struct {
	p     unsafe.Pointer
	alloc *Alloc // nil for unmanaged memory
	typ   driver.MemoryType
	dev   int
}

func (v *view) drop() {
	v.alloc.drop()
	*v = view{}
}

// acquire finds n bytes at p and holds their allocation.
func (sp *Space) acquire(op string, p driver.Ptr, n int) (view, error) {
	sp.mu.RLock()
	defer sp.mu.RUnlock()
	v, err := sp.look(op, p, n)
	if v.alloc != nil {
		v.alloc.holds.Add(1)
	}
	return v, err
}

// look finds n bytes at p. The lock is held, and the allocation is not.
func (sp *Space) look(op string, p driver.Ptr, n int) (view, error) {
	if p == 0 {
		return view{}, driver.Errorf(driver.ErrInvalidPointer, sp.name, op, "null")
	}
	if n < 0 {
		return view{}, driver.Errorf(driver.ErrInvalidArgument, sp.name, op, "%d bytes", n)
	}
	a := sp.find(p)
	if a == nil {
		if sp.Owned != nil && sp.Owned(p) {
			return view{}, driver.Errorf(driver.ErrInvalidPointer, sp.name, op,
				"%v is a device address, but nothing is allocated there", p)
		}
		return view{p: pointer(uintptr(p)), typ: driver.Unmanaged, dev: -1}, nil
	}
	offset := int(p - a.Base)
	if n > a.Bytes-offset {
		return view{}, driver.Errorf(driver.ErrOutOfBounds, sp.name, op,
			"%d bytes at %v leave the allocation of %d bytes at %v by %d",
			n, p, a.Bytes, a.Base, n-(a.Bytes-offset))
	}
	if a.Mapped != nil {
		if _, _, ok := a.Mapped(offset, n); !ok {
			return view{}, driver.Errorf(driver.ErrOutOfBounds, sp.name, op,
				"%d bytes at %v are reserved, but not all are mapped", n, p)
		}
	}
	dev := -1
	if a.Type == driver.DeviceMemory {
		dev = a.Device
	}
	return view{p: unsafe.Add(a.View, offset), alloc: a, typ: a.Type, dev: dev}, nil
}

// View is [driver.HostKernels].View.
func (sp *Space) View(p driver.Ptr, n int) (unsafe.Pointer, error) {
	sp.mu.RLock()
	v, err := sp.look("view", p, n)
	sp.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	if v.typ == driver.Unmanaged {
		return nil, driver.Errorf(driver.ErrWrongKind, sp.name, "view", "%v is not memory of the driver", p)
	}
	return v.p, nil
}

// pointer turns an address of memory that is not Go's, or that is kept alive elsewhere, into a pointer. The detour
// keeps vet and checkptr from taking it for arithmetic on a Go pointer.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
