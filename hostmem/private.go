package hostmem

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"unsafe"
)

// private stands for the descriptor of a segment that is anonymous memory of this process, which no peer can map.
// [Find] and [ByID] don't find it.
const private = -1

// refused reports whether the system has a call for others only, or not at all: what sandboxes answer.
func refused(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSYS)
}

var sayPrivate sync.Once

// blockSegment makes a segment for blocks: one of NewSegment, or where the system refuses memory files a private one.
func blockSegment(size int) (*Segment, error) { return sharedIfPossible(size, populate) }

// sharedIfPossible makes a segment whose pages fill makes present: private where the system refuses memory files. It
// says so once, except where they are not to be expected.
func sharedIfPossible(size int, fill func(fd int, base unsafe.Pointer, offset, size int) error) (*Segment, error) {
	s, err := newSegment(size, memoryFile, fill)
	if !refused(err) {
		return s, err
	}
	if memoryFiles {
		sayPrivate.Do(func() {
			slog.Default().Warn(fmt.Sprintf("chorus: memory can't be shared with other processes (%v): tensors that would be mapped by peers are in ordinary memory", err))
		})
	}
	return newSegment(size, func(int) (int, error) { return private, nil }, fill)
}
