//go:build !chorus_portable

package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of vectored.
const (
	readv  = unix.SYS_READV
	writev = unix.SYS_WRITEV
)

// vectored calls readv or writev once. It's a raw call that the scheduler doesn't know of, since the socket never
// blocks. Otherwise the scheduler would take a copy of more than some 20 us for a blocked call, and start another
// thread in its place. Two ranks on two cores feel each such thread. The price is that a garbage collection may have
// to wait for the copy: up to a millisecond.
func (t *transfer) vectored(call uintptr, fd int) (int, error) {
	var iov [2]unix.Iovec
	n := 0
	for _, piece := range [2][]byte{t.a, t.b} {
		if len(piece) > 0 {
			iov[n].Base = unsafe.SliceData(piece)
			iov[n].SetLen(len(piece))
			n++
		}
	}
	for {
		done, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&iov)), uintptr(n))
		switch errno {
		case 0:
			return int(done), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errWouldBlock
		default:
			return 0, errno
		}
	}
}
