package accinte

import (
	"errors"

	"golang.org/x/sys/unix"
)

// alive reports whether a process runs. A zombie doesn't.
func alive(pid uint32) bool {
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil { // without pidfds the process counts as there as long as it has a PID
		return !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) && !errors.Is(unix.Kill(int(pid), 0), unix.ESRCH)
	}
	defer unix.Close(fd)
	ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err != nil || ended == 0
}
