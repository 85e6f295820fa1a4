//go:build !linux || chorus_portable

package record

import (
	"os"
	"path/filepath"
)

// longestName is how long the name of a socket may be, in bytes: macOS has room for 104 with the zero at its end.
const longestName = 103

// WithShortPath calls f with another name of a path if it's too long for a socket: by way of a link to its directory
// that is there meanwhile.
func WithShortPath(path string, f func(short string) error) error {
	if len(path) <= longestName {
		return f(path)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return err
	}
	own, err := os.MkdirTemp("/tmp", "chorus-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	link := filepath.Join(own, "d")
	if err := os.Symlink(dir, link); err != nil {
		return err
	}
	return f(filepath.Join(link, filepath.Base(path)))
}
