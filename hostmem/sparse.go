package hostmem

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NewSparse makes a segment of at least size bytes of addresses without memory behind them, for an allocator that puts
// memory there piece by piece ([Segment.Commit]) and takes it away again ([Segment.Decommit]). Peers map it once, whole,
// and see the pieces come and go. Memory that was not committed must not be touched, though it reads as zero: touching
// it takes memory that nobody counts.
func NewSparse(size int) (*Segment, error) {
	return newSegment(size, memoryFile, func(int, unsafe.Pointer, int, int) error { return nil })
}

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

// Decommit gives the memory of a range of whole pages back to the host, here and for all who have mapped the segment.
func (s *Segment) Decommit(offset, bytes int) error {
	if err := s.checkPages(offset, bytes); err != nil {
		return err
	}
	err := retry(func() error {
		return unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(bytes))
	})
	if err != nil {
		return fmt.Errorf("hostmem: decommit %d bytes: fallocate: %w", bytes, err)
	}
	return nil
}

func (s *Segment) checkPages(offset, bytes int) error {
	if offset < 0 || bytes <= 0 || offset%pageSize != 0 || bytes%pageSize != 0 || bytes > s.size-offset {
		return fmt.Errorf("hostmem: %d bytes at %d are not whole pages of a segment of %d bytes", bytes, offset, s.size)
	}
	return nil
}
