package sys

import "golang.org/x/sys/unix"

// IsTerminal reports whether a descriptor is a terminal's.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TIOCGETA)
	return err == nil
}
