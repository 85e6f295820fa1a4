//go:build unix

package spare

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Calling reports whether a client waits to be accepted, or may: accept needs a free descriptor even to find that no
// client does.
func Calling(l net.Listener) bool {
	s, ok := l.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	calling := true
	raw.Control(func(fd uintptr) {
		n, err := 0, error(unix.EINTR)
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		}
		calling = n > 0 || err != nil
	})
	return calling
}
