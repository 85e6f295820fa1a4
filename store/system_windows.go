package store

import (
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file, which closing it undoes. With an error it says whether others have it, so that another try may
// do. Locked is a byte far behind the end: those that are locked can't be read by others.
func tryLock(f *os.File, alone bool) (taken bool, err error) {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if alone {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	return err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING, err
}

// silent takes a socket for open: using one that isn't says so.
func silent(uintptr) bool { return true }
