package cache

import (
	"errors"
	"fmt"
)

// The kinds of error, for errors.Is.
var (
	ErrOutOfMemory     = errors.New("out of memory")
	ErrInvalidArgument = errors.New("invalid argument")
	ErrUnknownStream   = errors.New("unknown stream")
	ErrUnknownPool     = errors.New("unknown pool")
	ErrDoubleFree      = errors.New("already free")                   // a block that was freed, and is still in the cache
	ErrInteriorPointer = errors.New("not the beginning of the block") // an address inside of a block
	ErrForeignPointer  = errors.New("no memory of this allocator")    // includes what was freed and has left the cache
)

// PointerError reports a pointer that isn't an allocation of the cache. It is an ErrDoubleFree, an ErrInteriorPointer
// or an ErrForeignPointer.
type PointerError struct {
	Op   string // Free, RecordStream, Size
	Addr uintptr
	Base uintptr // where the block begins that Addr is in; 0 for a foreign pointer
	Size int64   // of that block
	Kind error
}

func (e *PointerError) Error() string {
	if e.Base == 0 {
		return fmt.Sprintf("cache: %s(%#x): %v", e.Op, e.Addr, e.Kind)
	}
	return fmt.Sprintf("cache: %s(%#x): %v: %d bytes from %#x", e.Op, e.Addr, e.Kind, e.Size, e.Base)
}

func (e *PointerError) Unwrap() error { return e.Kind }

// OutOfMemoryError says where the memory is when there isn't enough of it. It is an [ErrOutOfMemory]. Sizes are in
// bytes.
type OutOfMemoryError struct {
	Device    int
	Requested int64
	Total     int64 // of the device
	Free      int64 // of the device, as the driver says
	Allowed   int64 // by the memory fraction; 0: no limit
	Allocated int64 // by callers
	Reserved  int64 // by the cache, from the driver
	Err       error // what the driver said, or nil if the fraction forbids
}

func (e *OutOfMemoryError) Error() string {
	allowed := ""
	if e.Allowed > 0 {
		allowed = fmt.Sprintf(" %s allowed;", bytesText(e.Allowed))
	}
	return fmt.Sprintf("out of memory: tried to allocate %s. Device %d has a total capacity of %s of which %s is free.%s "+
		"Of the allocated memory %s is in use, and %s is reserved but unallocated. If reserved but unallocated memory is large, try "+
		"PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation",
		bytesText(e.Requested), e.Device, bytesText(e.Total), bytesText(e.Free), allowed, bytesText(e.Allocated),
		bytesText(e.Reserved-e.Allocated))
}

func (e *OutOfMemoryError) Is(target error) bool { return target == ErrOutOfMemory }
func (e *OutOfMemoryError) Unwrap() error        { return e.Err }

// bytesText shows a size as PyTorch does: 512 bytes, 2.00 MiB.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.2f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("cache: %w: %s", ErrInvalidArgument, fmt.Sprintf(format, args...))
}

// StreamError reports a stream that the driver doesn't have. It is an [ErrUnknownStream].
type StreamError struct{ Stream Stream }

func (e *StreamError) Error() string {
	return fmt.Sprintf("cache: %v %#x", ErrUnknownStream, uint64(e.Stream))
}
func (e *StreamError) Unwrap() error { return ErrUnknownStream }

func isOutOfMemory(err error) bool { return errors.Is(err, ErrOutOfMemory) }

// errFraction is why an expandable segment can't grow: the memory fraction forbids it.
var errFraction = fmt.Errorf("cache: %w: the memory fraction allows no more", ErrOutOfMemory)
