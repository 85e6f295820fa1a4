package process

import "golang.org/x/sys/unix"

// AwaitExit waits until a child is dead, and leaves it to be reaped.
func AwaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// isStopped reports whether a child is stopped by a signal.
func isStopped(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// adoptOrphans makes this process the parent of processes below it whose own has died, or no more.
func adoptOrphans(adopt bool) error {
	on := uintptr(0)
	if adopt {
		on = 1
	}
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)
}

// bytesInPipe is the request of ioctl(2) for how much there is to read.
const bytesInPipe = unix.TIOCINQ
