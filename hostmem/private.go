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

// unavailable is why there can be no memory file of a size: a sandbox, or the process's limit on the size of files
// (RLIMIT_FSIZE), forbids it, or the system has none. It matches errors.ErrUnsupported.
type unavailable struct{ error }

func (e *unavailable) Unwrap() error        { return e.error }
func (e *unavailable) Is(target error) bool { return target == errors.ErrUnsupported }

// unless returns err as unavailable if it's that.
func unless(err error) error {
	if refused(err) || errors.Is(err, syscall.EFBIG) {
		return &unavailable{err}
	}
	return err
}

var sayPrivate sync.Once

// blockSegment makes a segment for blocks: one of NewSegment, or where there can be no memory file a private one.
func blockSegment(size int) (*Segment, error) { return sharedIfPossible(size, populate) }

// sharedIfPossible makes a segment whose pages fill makes present: private where there can be no memory file. It says
// so once, except where they are not to be expected.
func sharedIfPossible(size int, fill func(fd int, base unsafe.Pointer, offset, size int) error) (*Segment, error) {
	s, err := newSegment(size, memoryFile, fill)
	if !errors.As(err, new(*unavailable)) {
		return s, err
	}
	if memoryFiles {
		sayPrivate.Do(func() {
			slog.Default().Warn(fmt.Sprintf("chorus: memory can't be shared with other processes (%v): tensors that would be mapped by peers are in ordinary memory", err))
		})
	}
	return newSegment(size, func(int) (int, error) { return private, nil }, fill)
}
