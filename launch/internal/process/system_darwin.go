package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitExit waits until a child is dead, and leaves it to be reaped.
func AwaitExit(pid int) {
	if queue, err := unix.Kqueue(); err == nil {
		defer unix.Close(queue)
		var exit, news [1]unix.Kevent_t
		unix.SetKevent(&exit[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
		exit[0].Fflags = unix.NOTE_EXIT
		err = unix.EINTR
		for err == unix.EINTR {
			_, err = unix.Kevent(queue, exit[:], news[:], nil)
		}
		if err == nil || err == unix.ESRCH { // it has ended now, or before
			return
		}
	}
	for { // there is no descriptor left for a queue
		p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
		if err != nil || p.Proc.P_stat == zombie {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// isStopped reports whether a child is stopped by a signal.
func isStopped(pid int) bool {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && p.Proc.P_stat == stopped
}

// SSTOP and SZOMB of sys/proc.h.
const (
	stopped = 4
	zombie  = 5
)

// adoptOrphans would make this process the parent of processes below it whose own has died.
func adoptOrphans(bool) error { return errors.New("needs Linux") }

// bytesInPipe is the request of ioctl(2) for how much there is to read: FIONREAD of sys/filio.h.
const bytesInPipe = 0x4004667f
