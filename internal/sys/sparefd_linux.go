//go:build !chorus_portable

package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// openSpare makes a descriptor that needs nothing of the file system.
func openSpare() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "spare"), nil
}
