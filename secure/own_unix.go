//go:build unix

package secure

import (
	"io/fs"
	"os"
	"syscall"
)

// isOwn reports whether a file belongs to the user of this process.
func isOwn(i fs.FileInfo) bool {
	s, ok := i.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) == os.Geteuid()
}
