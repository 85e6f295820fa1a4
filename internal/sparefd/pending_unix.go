//go:build unix

package sparefd

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pending reports whether a client waits to be accepted, or may: accept needs a free descriptor even to find that no
// client does.
func Pending(l net.Listener) bool {
	s, ok := l.(syscall.Conn)
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
