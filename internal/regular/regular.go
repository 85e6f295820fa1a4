// Package regular reads files that other programs have put at the places where Chorus looks for them, and that may be
// anything: only regular files, and no more of one than it's allowed to have.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file for reading, and returns its size. A FIFO, a socket, a device or a directory is an error,
// and isn't waited for. Errors don't name the path.
func Open(path string) (*os.File, int64, error) {
	i, err := os.Stat(path) // before it's opened, which does something to some devices
	if err != nil {
		return nil, 0, bare(err)
	}
	if !i.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("it's %s", kind(i.Mode()))
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, bare(err)
	}
	if i, err = f.Stat(); err == nil && !i.Mode().IsRegular() { // it's another one by now
		err = fmt.Errorf("it's %s", kind(i.Mode()))
	}
	if err != nil {
		f.Close()
		return nil, 0, bare(err)
	}
	return f, i.Size(), nil
}

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, size, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, tooLarge(limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may be growing
	if err != nil {
		return nil, bare(err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}

func tooLarge(limit int64) error { return fmt.Errorf("it has more than %d bytes", limit) }

// bare is an error without the path.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func kind(m fs.FileMode) string {
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
