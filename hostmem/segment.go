package hostmem

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// maxSize bounds one segment: 64 TiB, half of the user address space of 4-level page tables.
const maxSize = 1 << 46

// Segment is a sealed memory file mapped into this process, readable and writable, page aligned; or, of [Alloc] and
// [AllocSparse] where there can be no such file, memory of this process alone. Its accessors may be called from any
// goroutine; after Close the memory must not be touched.
type Segment struct {
	id     uint64
	fd     int // private: none
	base   unsafe.Pointer
	size   int
	color  int
	band   int
	closed atomic.Bool
}

var lastID atomic.Uint64

// NewSegment makes a zeroed segment of at least size bytes (rounded up to whole pages) with all pages present. The
// caller owns it and must Close it. It fails with an error that matches errors.ErrUnsupported in three cases. There are
// no memory files, as on all systems but Linux; the system refuses them, as some sandboxes do; or this process's limit
// on the size of files (RLIMIT_FSIZE) is smaller.
func NewSegment(size int) (*Segment, error) {
	return newSegment(size, memoryFile, populate)
}

// newSegment makes a segment of what open gives, whose pages fill makes present.
func newSegment(size int, open func(size int) (fd int, err error),
	fill func(fd int, base unsafe.Pointer, offset, size int) error) (*Segment, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("hostmem: segment size %d is not in 1..%d", size, maxSize)
	}
	size = roundUp(size, pageSize)
	fd, err := open(size)
	if err != nil {
		return nil, unless(err)
	}
	band, color := takeBand()
	base, err := mapAt(fd, size, color)
	if err == nil {
		if err = fill(fd, base, 0, size); err != nil {
			unmap(base, size)
		}
	}
	if err != nil {
		dropBand(band)
		closeFile(fd)
		return nil, err
	}
	s := &Segment{id: lastID.Add(1), fd: fd, base: base, size: size, color: color, band: band}
	if fd != private {
		index.insert(s)
	}
	return s, nil
}

// touch makes every page of a range present by a store to it: a lack of memory is a signal here.
func touch(base unsafe.Pointer, offset, size int) {
	for at := 0; at < size; at += pageSize {
		atomic.OrUint32((*uint32)(unsafe.Add(base, offset+at)), 0)
	}
}

// ID identifies the segment in this process; IDs are never reused.
func (s *Segment) ID() uint64 { return s.id }

// FD is the descriptor to pass to peers, -1 if there is none. It belongs to the segment; do not close it.
func (s *Segment) FD() int { return s.fd }

// Shared reports whether peers can map the segment: else it's memory of this process alone.
func (s *Segment) Shared() bool { return s.fd != private }

// Base is the address of the first byte.
func (s *Segment) Base() unsafe.Pointer { return s.base }

// Size is the length in bytes, a multiple of the page size.
func (s *Segment) Size() int { return s.size }

// Color is the page index of Base within its 256 MiB window, to be passed to peers for [Map].
func (s *Segment) Color() int { return s.color }

// Bytes is the whole segment. The slice does not keep the segment open.
func (s *Segment) Bytes() []byte { return unsafe.Slice((*byte)(s.base), s.size) }

// Close unmaps the segment and closes its descriptor; peers that have mapped it keep their mappings.
// Closing twice is harmless.
func (s *Segment) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	index.remove(s)
	err := errors.Join(unmap(s.base, s.size), closeFile(s.fd))
	dropBand(s.band)
	announceClose(s.id)
	return err
}

// Mapping is a peer's segment mapped into this process, readable and writable.
type Mapping struct {
	base  unsafe.Pointer
	size  int
	full  bool // all of its memory was there when it was mapped
	undo  sync.Once
	undid error
}

var liveMappings atomic.Int64

// Map maps the first size bytes of a segment received from a peer, at the colour that the peer's [Segment.Color] gave.
// It refuses a file that is smaller than size or that could still shrink. It does not take over fd, which may be closed
// as soon as Map returns. size is rounded up to whole pages.
func Map(fd int, size int64, color int) (*Mapping, error) {
	m, err := MapUntouched(fd, size, color)
	if err == nil {
		m.Prefault(0, roundUp(m.size, pageSize))
	}
	return m, err
}

// MapUntouched is Map for a segment of which this process uses a small part. A page of it is mapped when it's first
// touched, or by [Mapping.Prefault].
func MapUntouched(fd int, size int64, color int) (*Mapping, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("hostmem: mapping size %d is not in 1..%d", size, maxSize)
	}
	if color < 0 || color >= colorSpan/pageSize {
		return nil, fmt.Errorf("hostmem: colour %d is not in 0..%d", color, colorSpan/pageSize-1)
	}
	has, full, err := checkFile(fd)
	if err != nil {
		return nil, err
	}
	n := roundUp(int(size), pageSize)
	if has < int64(n) {
		return nil, fmt.Errorf("hostmem: segment holds %d bytes, %d were announced", has, size)
	}
	base, err := mapAt(fd, n, color)
	if err != nil {
		return nil, err
	}
	liveMappings.Add(1)
	return &Mapping{base: base, size: int(size), full: full}, nil
}

// Prefault maps the pages of a range, which begins at a page, rather than at their first touch. A sparse segment is left
// alone: filling it would let a peer spend this process's memory.
func (m *Mapping) Prefault(offset, size int) {
	if m.full {
		prefault(unsafe.Add(m.base, offset), size)
	}
}

// Base is the address of the first byte.
func (m *Mapping) Base() unsafe.Pointer { return m.base }

// Size is the length in bytes that Map was asked for.
func (m *Mapping) Size() int { return m.size }

// Bytes is the whole mapping. The slice does not keep it mapped.
func (m *Mapping) Bytes() []byte { return unsafe.Slice((*byte)(m.base), m.size) }

// Unmap removes the mapping; its memory must not be touched afterwards. Repeated calls return the first result.
func (m *Mapping) Unmap() error {
	m.undo.Do(func() {
		m.undid = unmap(m.base, roundUp(m.size, pageSize))
		liveMappings.Add(-1)
	})
	return m.undid
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
