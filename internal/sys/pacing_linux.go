package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// DisablePacing lets a connection within a host send at full speed if the kernel's congestion control is one that
// paces, like BBR: there's no network to spare. Where the kernel doesn't permit that, nothing changes.
func DisablePacing(nc syscall.Conn) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(own uintptr) {
		fd := int(own)
		if now, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || now == "cubic" ||
			now == "reno" {
			return
		}
		if unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") != nil {
			unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		}
	})
}
