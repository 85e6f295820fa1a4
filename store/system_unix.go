//go:build unix

package store

import (
	"os"
	"syscall"
)

// tryLock locks a file, which closing it undoes. With an error it says whether others have it, so that another try may
// do.
func tryLock(f *os.File, alone bool) (taken bool, err error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	return err == syscall.EWOULDBLOCK || err == syscall.EINTR, err
}

// silent reports whether a socket is open and has nothing to read.
func silent(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
}
