package cache

import "fmt"

// Stream names a stream of a device, in the driver's terms. 0 is the default stream.
type Stream uint64

// Event names a recorded event, in the driver's terms.
type Event uint64

// Driver is what a cache needs of one device. Its methods may be called from any goroutine, but, except for a cache
// with UnlockForDriver, one at a time.
type Driver interface {
	// Alloc returns device memory. If there isn't enough, the error is an [ErrOutOfMemory], for errors.Is. Addresses are
	// multiples of 512.
	Alloc(size int64) (addr uintptr, err error)

	// Free returns memory of Alloc. Work that still uses it has to end first, as with cudaFree; the cache doesn't see to
	// that.
	Free(addr uintptr) error

	// HasStream says whether a stream exists. It is asked when a stream is first named.
	HasStream(s Stream) bool

	// Record returns an event that happens when all work that is now on the stream is done.
	Record(s Stream) (Event, error)

	// Query says whether an event has happened.
	Query(e Event) (bool, error)

	// Wait blocks until an event has happened.
	Wait(e Event) error

	// Release forgets an event, which may not have happened yet.
	Release(e Event)

	// Memory returns how much memory the device has, and how much of it is free.
	Memory() (free, total int64, err error)
}

// Reserver is a driver that can reserve addresses and put memory behind them later.
type Reserver interface {
	Driver

	// Granularity is what sizes and offsets of Reserve, Map and Unmap are multiples of.
	Granularity() int64

	Reserve(size int64) (addr uintptr, err error)
	Unreserve(addr uintptr, size int64) error

	// Map puts new memory behind addresses, and Unmap takes it away. If there isn't enough memory the error is an
	// [ErrOutOfMemory].
	Map(addr uintptr, size int64) error
	Unmap(addr uintptr, size int64) error
}

// Reclaimer is a driver whose Free may keep memory for a while, until the work that uses it is done.
type Reclaimer interface {
	// Reclaim waits for memory of Free that Alloc can't give again yet. It's called with no lock held, at the same time
	// as other methods.
	Reclaim()
}

// PoolID names a private pool, as PyTorch's MempoolId_t does. The zero PoolID stands for the ordinary pools.
type PoolID [2]uint64

// String shows the two numbers as PyTorch does: (0, 1).
func (p PoolID) String() string { return fmt.Sprintf("(%d, %d)", p[0], p[1]) }
