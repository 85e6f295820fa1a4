package base

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

// Allocation is memory that a driver has allocated, or opened from another process.
type Allocation struct {
	Base   driver.Ptr
	Bytes  int
	On     *Device // nil: the host's
	Remote bool    // of another process

	freed bool // and not yet given back, as work may use it
	opens int  // of memory of another process
}

// Type is the memory's.
func (a *Allocation) Type() driver.MemoryType {
	if a.On == nil {
		return driver.HostMemory
	}
	return driver.DeviceMemory
}

// Attributes are what [driver.Memory].Attributes says of it.
func (a *Allocation) Attributes() driver.Attributes {
	at := driver.Attributes{Type: a.Type(), Device: -1, Base: a.Base, Bytes: a.Bytes, Remote: a.Remote}
	if a.On != nil {
		at.Device = a.On.Index
	}
	return at
}

func (a *Allocation) allocation() *Allocation { return a }

func (a *Allocation) contains(p driver.Ptr) bool { return int(p-a.Base) < a.Bytes }

// Allocations are a driver's, by their addresses. Those that were freed are among them until they are removed.
type Allocations[A interface {
	comparable
	allocation() *Allocation
}] struct {
	mu   sync.RWMutex
	list []A

	changes atomic.Uint64
}

// Changes counts what makes memory known, frees it or forgets it: while it's the same, so is what [Allocations.Find]
// says.
func (as *Allocations[A]) Changes() uint64 { return as.changes.Load() }

// search is the place of the last allocation that doesn't begin above p, or -1.
func (as *Allocations[A]) search(p driver.Ptr) int {
	at, found := slices.BinarySearchFunc(as.list, p, func(a A, p driver.Ptr) int {
		switch base := a.allocation().Base; {
		case base < p:
			return -1
		case base > p:
			return 1
		}
		return 0
	})
	if !found {
		at--
	}
	return at
}

// find returns the allocation that p points into, freed or not; the zero A for none. It's locked.
func (as *Allocations[A]) find(p driver.Ptr) (a A) {
	if i := as.search(p); i >= 0 && as.list[i].allocation().contains(p) {
		return as.list[i]
	}
	return a
}

// Find returns the allocation that p points into, the zero A if it was freed, or if there's none, which known tells.
func (as *Allocations[A]) Find(p driver.Ptr) (a A, known bool) {
	as.mu.RLock()
	defer as.mu.RUnlock()
	var none A
	if a = as.find(p); a == none {
		return none, false
	}
	if a.allocation().freed {
		return none, true
	}
	return a, true
}

// Add makes an allocation known.
func (as *Allocations[A]) Add(a A) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.add(a)
}

// add is Add within mu.
func (as *Allocations[A]) add(a A) {
	as.changes.Add(1)
	as.list = slices.Insert(as.list, as.search(a.allocation().Base)+1, a)
}

// Remove forgets an allocation. It's called before the library may give the address out again.
func (as *Allocations[A]) Remove(a A) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.changes.Add(1)
	as.list = slices.DeleteFunc(as.list, func(o A) bool { return o == a })
}

// Free checks a call of [driver.Memory].Free, and marks the allocation as freed.
func (as *Allocations[A]) Free(op string, on *Device, p driver.Ptr) (A, error) {
	return as.free(op, on.Name, p, driver.DeviceMemory, func(a *Allocation) error {
		switch {
		case a.Remote:
			return driver.Errorf(driver.ErrInvalidPointer, on.Name, op, "%v belongs to another process: close it", p)
		case a.On != on:
			return driver.Errorf(driver.ErrWrongDevice, on.Name, op, "%v is memory of %s", p, a.On.Name)
		}
		return nil
	})
}

// FreeHost checks a call of [driver.Memory].FreeHost of the driver with the name, and marks the allocation as freed.
func (as *Allocations[A]) FreeHost(op, name string, p driver.Ptr) (A, error) {
	return as.free(op, name, p, driver.HostMemory, func(*Allocation) error { return nil })
}

func (as *Allocations[A]) free(op, name string, p driver.Ptr, typ driver.MemoryType, check func(*Allocation) error) (a A,
	err error) {
	as.mu.Lock()
	defer as.mu.Unlock()
	var none A
	if a = as.find(p); a == none || a.allocation().freed {
		return none, driver.Errorf(driver.ErrInvalidPointer, name, op, "%v is not memory of the driver", p)
	}
	x := a.allocation()
	if x.Type() != typ {
		return none, driver.Errorf(driver.ErrWrongKind, name, op, "%v is %v memory", p, x.Type())
	}
	if err := check(x); err != nil {
		return none, err
	}
	if x.Base != p {
		return none, driver.Errorf(driver.ErrInvalidPointer, name, op, "%v lies inside the allocation at %v", p, x.Base)
	}
	as.changes.Add(1)
	x.freed = true
	return a, nil
}

// Open adds memory of another process; or it counts that memory which is the same was opened again, and returns that.
func (as *Allocations[A]) Open(a A, same func(a A, freed bool) bool) A {
	as.mu.Lock()
	defer as.mu.Unlock()
	if o, ok := as.again(same); ok {
		return o
	}
	a.allocation().Remote, a.allocation().opens = true, 1
	as.add(a)
	return a
}

// Again counts that memory of another process was opened once more, if there is some that is the same.
func (as *Allocations[A]) Again(same func(a A, freed bool) bool) (a A, ok bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.again(same)
}

// again is Again within mu.
func (as *Allocations[A]) again(same func(a A, freed bool) bool) (a A, ok bool) {
	for _, o := range as.list {
		if x := o.allocation(); x.Remote && same(o, x.freed) {
			as.changes.Add(1)
			x.opens++
			x.freed = false
			return o, true
		}
	}
	return a, false
}

// Close undoes Open of the memory at p, and reports whether that was the last time; else the memory isn't freed.
func (as *Allocations[A]) Close(name string, p driver.Ptr) (a A, last bool, err error) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for _, o := range as.list {
		if x := o.allocation(); x.Base == p && x.Remote && !x.freed {
			as.changes.Add(1)
			x.opens--
			x.freed = x.opens == 0
			return o, x.freed, nil
		}
	}
	return a, false, driver.Errorf(driver.ErrInvalidPointer, name, "close IPC handle", "%v was not opened", p)
}

// Bytes are some of the host's memory.
func Bytes(p driver.Ptr, n int) []byte { return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n) }
