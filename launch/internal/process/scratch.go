package process

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// scratchPrefix begins the name of the directory that a launcher keeps while it runs. It has the directory's lock as
// long: one that can be locked was left behind by a launcher that was killed, and its guard with it.
const scratchPrefix = "chorus-run-"

// MakeScratch makes a launcher's directory and locks it. The lock is nil where there are none.
func MakeScratch(in string) (dir string, l *os.File, err error) {
	for {
		if dir, err = os.MkdirTemp(in, scratchPrefix); err != nil {
			return "", nil, err
		}
		if l, err = Lock(dir); err != nil && !os.IsNotExist(err) {
			return dir, nil, nil
		}
		if err == nil && names(dir, l) {
			return dir, l, nil
		}
		l.Close() // another launcher took it for one that was left behind; a nil file only says so
	}
}

// SweepScratch removes the directories of this user's launchers that are dead.
func SweepScratch(in string) {
	entries, _ := os.ReadDir(in)
	for _, e := range entries {
		i, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), scratchPrefix) || !ours(i) {
			continue
		}
		dir := filepath.Join(in, e.Name())
		if l, err := Lock(dir); err == nil {
			if names(dir, l) {
				os.RemoveAll(dir)
			}
			l.Close()
		}
	}
}

// names reports whether a path is still that of an open directory of this user's.
func names(path string, open *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	i, err := open.Stat()
	return err == nil && os.SameFile(there, i) && ours(i)
}

// ours reports whether a file belongs to this user.
func ours(i fs.FileInfo) bool {
	st, ok := i.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// Lock takes the lock of a directory, which no other process has until the file is closed.
func Lock(dir string) (*os.File, error) { return Flock(dir, unix.LOCK_EX|unix.LOCK_NB) }

// Flock takes the lock of a directory in one of flock(2)'s ways.
func Flock(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0) // a FIFO is no directory, and not waited for
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return f, nil
}
