//go:build !chorus_portable

package tcp

import (
	"os"

	"golang.org/x/sys/unix"
)

// socketPair makes two sockets that are joined, never block, and that no child inherits.
func socketPair() ([2]int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	return fds, os.NewSyscallError("socketpair", err)
}
