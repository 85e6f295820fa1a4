package hostmem

import (
	"errors"
	"fmt"
	"unsafe"
)

// LeastShared is the size of file that a process must be able to make to share memory with others: they have some of a
// few MiB in common.
const LeastShared = 64 << 20

// NewSparse makes a segment of at least size bytes of addresses without memory behind them, for an allocator that puts
// memory there piece by piece ([Segment.Commit]) and takes it away again ([Segment.Decommit]). Peers map it once,
// whole, and see the pieces come and go. Memory that was not committed must not be touched, though it reads as zero:
// touching it takes memory that isn't counted.
func NewSparse(size int) (*Segment, error) {
	return newSegment(size, memoryFile, leaveOut)
}

// AllocSparse is NewSparse where the system has memory files. Where it refuses them the addresses are of this process
// alone, which [Segment.Shared] tells.
func AllocSparse(size int) (*Segment, error) { return sharedIfPossible(size, leaveOut) }

func leaveOut(int, unsafe.Pointer, int, int) error { return nil }

// Commit makes the pages of a range of a sparse segment present. Pages that are new are zero. The range must consist of
// whole pages. After an error none of the range is present.
func (s *Segment) Commit(offset, bytes int) error {
	if err := s.checkPages(offset, bytes); err != nil {
		return err
	}
	if err := populate(s.fd, s.base, offset, bytes); err != nil {
		return errors.Join(err, s.Decommit(offset, bytes))
	}
	return nil
}

// Decommit gives the memory of a range of whole pages back to the host, here and for all processes that have mapped the
// segment.
func (s *Segment) Decommit(offset, bytes int) error {
	if err := s.checkPages(offset, bytes); err != nil {
		return err
	}
	if !s.Shared() {
		return discard(s.base, offset, bytes)
	}
	return punch(s.fd, offset, bytes)
}

func (s *Segment) checkPages(offset, bytes int) error {
	if offset < 0 || bytes <= 0 || offset%pageSize != 0 || bytes%pageSize != 0 || bytes > s.size-offset {
		return fmt.Errorf("hostmem: %d bytes at %d are not whole pages of a segment of %d bytes", bytes, offset, s.size)
	}
	return nil
}
