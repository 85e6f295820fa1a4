//go:build !linux || chorus_portable

package hostmem

import (
	"syscall"
	"unsafe"
)

// memoryFiles says that this system has no memory that processes can share by a descriptor, sealed against changes of
// its size.
const memoryFiles = false

// needsLinux is the error of all that shares memory. It counts as a refusal.
type needsLinux struct{}

func (needsLinux) Error() string        { return "shared memory between processes needs Linux" }
func (needsLinux) Is(target error) bool { return target == syscall.ENOSYS }

func memoryFile(int) (fd int, err error) { return private, needsLinux{} }

// populate makes every page of a range present.
func populate(_ int, base unsafe.Pointer, offset, size int) error {
	touch(base, offset, size)
	return nil
}

func punch(fd, offset, size int) error { return needsLinux{} }

func checkFile(fd int) (size int64, full bool, err error) { return 0, false, needsLinux{} }

func prefault(unsafe.Pointer, int) {}
