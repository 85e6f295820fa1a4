//go:build !chorus_portable

package sparefd

import (
	"os"

	"golang.org/x/sys/unix"
)

// open makes a descriptor that needs nothing of the file system.
func open() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "spare"), nil
}
