package hostmem

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seals fix the size for good. F_SEAL_SEAL keeps a peer from adding F_SEAL_WRITE later.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// maxSize bounds one segment: 64 TiB, half of the user address space of 4-level page tables.
const maxSize = 1 << 46

// Segment is a sealed memory file mapped into this process, readable and writable, page aligned.
// Its accessors may be called from any goroutine; after Close the memory must not be touched.
type Segment struct {
	id     uint64
	fd     int // private: none
	base   unsafe.Pointer
	size   int
	color  int
	lane   int
	closed atomic.Bool
}

var lastID atomic.Uint64

// NewSegment makes a zeroed segment of at least size bytes (rounded up to whole pages) with all pages present.
// The caller owns it and must Close it. Where the system refuses memory files, as some sandboxes do, that is the error.
func NewSegment(size int) (*Segment, error) {
	return newSegment(size, memoryFile, populate)
}

// newSegment makes a segment of what open gives, whose pages fill makes present.
func newSegment(size int, open func(size int) (fd int, err error), fill func(fd int, base unsafe.Pointer, offset, size int) error) (*Segment, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("hostmem: segment size %d is not in 1..%d", size, maxSize)
	}
	size = roundUp(size, pageSize)
	fd, err := open(size)
	if err != nil {
		return nil, err
	}
	lane, color := takeLane()
	base, err := mapAt(fd, size, color)
	if err == nil {
		if err = fill(fd, base, 0, size); err != nil {
			unix.MunmapPtr(base, uintptr(size))
		}
	}
	if err != nil {
		dropLane(lane)
		closeFile(fd)
		return nil, err
	}
	s := &Segment{id: lastID.Add(1), fd: fd, base: base, size: size, color: color, lane: lane}
	if fd != private {
		index.insert(s)
	}
	return s, nil
}

// memoryFile makes a sealed memory file.
func memoryFile(size int) (fd int, err error) {
	if fd, err = unix.MemfdCreate("chorus", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, fmt.Errorf("hostmem: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("hostmem: size a segment to %d bytes: ftruncate: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("hostmem: seal a segment: fcntl: %w", err)
	}
	return fd, nil
}

func closeFile(fd int) error {
	if fd == private {
		return nil
	}
	return unix.Close(fd)
}

// populate makes every page of a range present, so that lack of memory is an error here and not a signal at some later
// store.
func populate(fd int, base unsafe.Pointer, offset, size int) error {
	err := retry(func() error {
		return unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(base, offset)), size), unix.MADV_POPULATE_WRITE)
	})
	by := "madvise"
	if fd != private && (errors.Is(err, unix.EINVAL) || refused(err)) {
		by = "fallocate" // Linux before 5.14, or a sandbox: the pages exist after this, but are mapped at first touch
		err = retry(func() error { return unix.Fallocate(fd, 0, int64(offset), int64(size)) })
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || refused(err) {
		for at := 0; at < size; at += pageSize { // all that is left: here a lack of memory is a signal
			atomic.OrUint32((*uint32)(unsafe.Add(base, offset+at)), 0)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("hostmem: populate %d bytes: %s: %w", size, by, err)
	}
	return nil
}

// retry repeats a system call that a signal, of the Go scheduler or a profiler for example, has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// ID identifies the segment in this process; IDs are never reused.
func (s *Segment) ID() uint64 { return s.id }

// FD is the descriptor to pass to peers. It belongs to the segment; do not close it.
func (s *Segment) FD() int { return s.fd }

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
	err := errors.Join(unix.MunmapPtr(s.base, uintptr(s.size)), closeFile(s.fd))
	dropLane(s.lane)
	announceClose(s.id)
	return err
}

// Mapping is a peer's segment mapped into this process, readable and writable.
type Mapping struct {
	base  unsafe.Pointer
	size  int
	undo  sync.Once
	undid error
}

var liveMappings atomic.Int64

// Map maps the first size bytes of a segment received from a peer, at the colour that the peer's [Segment.Color] gave.
// It refuses a file that is smaller than size or that could still shrink. It does not take over fd, which may be closed
// as soon as Map returns. size is rounded up to whole pages.
func Map(fd int, size int64, color int) (*Mapping, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("hostmem: mapping size %d is not in 1..%d", size, maxSize)
	}
	if color < 0 || color >= colorSpan/pageSize {
		return nil, fmt.Errorf("hostmem: colour %d is not in 0..%d", color, colorSpan/pageSize-1)
	}
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("hostmem: descriptor %d is not a sealable memory file: %w", fd, err)
	}
	if have&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("hostmem: descriptor %d is not sealed against shrinking", fd)
	}
	// After the seals, because only then the size cannot change any more.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("hostmem: fstat: %w", err)
	}
	n := roundUp(int(size), pageSize)
	if st.Size < int64(n) {
		return nil, fmt.Errorf("hostmem: segment holds %d bytes, %d were announced", st.Size, size)
	}
	base, err := mapAt(fd, n, color)
	if err != nil {
		return nil, err
	}
	if st.Blocks*512 >= st.Size {
		// All pages exist, so this costs page-table entries only. A sparse file is left alone: filling it would let a
		// peer spend this process's memory. Failure only moves the cost to the first touch.
		_ = unix.Madvise(unsafe.Slice((*byte)(base), n), unix.MADV_POPULATE_WRITE)
	}
	liveMappings.Add(1)
	return &Mapping{base: base, size: int(size)}, nil
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
		m.undid = unix.MunmapPtr(m.base, uintptr(roundUp(m.size, pageSize)))
		liveMappings.Add(-1)
	})
	return m.undid
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
