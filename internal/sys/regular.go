package sys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"syscall"
)

// OpenRegular opens a regular file for reading, one that another program has put where Chorus looks for it, and that
// may be anything. It returns its size. A FIFO, a socket, a device or a directory is an error, and isn't waited for.
// Errors don't name the path.
//
// A descriptor that the process was given, such as /dev/stdin or a shell's /dev/fd/63, may be a pipe or a terminal,
// which says no size. Its reader waits as long as its writer does.
func OpenRegular(path string) (*os.File, int64, error) { return OpenRegularAs(path, os.O_RDONLY, 0) }

// OpenRegularAs is OpenRegular with the flags and the mode of [os.OpenFile].
func OpenRegularAs(path string, flag int, mode fs.FileMode) (*os.File, int64, error) {
	i, err := os.Stat(path) // before it's opened, which does something to some devices
	if err != nil && (flag&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, 0, withoutPath(err)
	}
	given := flag == os.O_RDONLY && descriptor.MatchString(path)
	if err == nil && !suits(i.Mode(), given) {
		return nil, 0, fmt.Errorf("it's %s", fileKind(i.Mode()))
	}
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, 0, withoutPath(err)
	}
	if i, err = f.Stat(); err == nil && !suits(i.Mode(), given) { // it's another one by now
		err = fmt.Errorf("it's %s", fileKind(i.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, 0, withoutPath(err)
	}
	return f, i.Size(), nil
}

// descriptor is the path of one of the process's own descriptors.
var descriptor = regexp.MustCompile(`^/dev/stdin$|^(/dev|/proc/self)/fd/[0-9]+$`)

// suits says whether what has a mode may be read.
func suits(m fs.FileMode, given bool) bool {
	return m.IsRegular() || given && m&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0
}

// ReadRegular reads a file that OpenRegular opens, of at most limit bytes.
func ReadRegular(path string, limit int64) ([]byte, error) {
	f, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f, size, limit)
}

// readAtMost reads a file of a size.
func readAtMost(f *os.File, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, tooLarge(limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may be growing
	if err != nil {
		return nil, withoutPath(err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}

func tooLarge(limit int64) error { return fmt.Errorf("it has more than %d bytes", limit) }

// withoutPath is an error without the path.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func fileKind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}
