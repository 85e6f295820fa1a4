//go:build !chorus_portable

package record

import (
	"fmt"
	"os"
	"path/filepath"
)

// WithShortPath calls f with another name of a path: those of sockets may have 107 bytes at most.
func WithShortPath(path string, f func(short string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
