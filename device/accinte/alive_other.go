//go:build !linux

package accinte

import (
	"errors"

	"golang.org/x/sys/unix"
)

// alive reports whether there is a process of a number.
func alive(pid uint32) bool { return !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) }
