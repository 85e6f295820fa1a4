//go:build !linux || chorus_portable

package tcp

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketPair makes two sockets that are joined, never block, and that no child inherits.
func socketPair() (fds [2]int, err error) {
	err = nonblocking(&fds, "socketpair", func() (err error) {
		fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	})
	return fds, err
}

// nonblockingPipe makes a pipe whose ends never block, and that no child inherits.
func nonblockingPipe(fds *[2]int) error {
	return nonblocking(fds, "pipe", func() error { return unix.Pipe(fds[:]) })
}

// nonblocking calls what makes two descriptors, and has them never block, and no child inherit them: none is started
// meanwhile.
func nonblocking(fds *[2]int, call string, create func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := create(); err != nil {
		return os.NewSyscallError(call, err)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
			return os.NewSyscallError("fcntl", err)
		}
	}
	return nil
}
