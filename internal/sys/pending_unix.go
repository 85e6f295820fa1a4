//go:build unix

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// AcceptPending reports whether a client of a listener waits to be accepted, or may: accept needs a free descriptor
// even to find that no client does.
func AcceptPending(listener any) bool {
	s, ok := listener.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	pending := true
	raw.Control(func(fd uintptr) {
		n, err := 0, error(unix.EINTR)
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		}
		pending = n > 0 || err != nil
	})
	return pending
}
