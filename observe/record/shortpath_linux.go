//go:build !chorus_portable

package record

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// WithShortPath calls f with another name of a path: those of sockets may have 107 bytes at most.
func WithShortPath(path string, f func(short string) error) error {
	dir, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|syscall.O_DIRECTORY, 0) // no FIFO, which would be waited for
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
