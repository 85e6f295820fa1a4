//go:build !chorus_portable

package tcp

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A watchSet tells which connections a poller has to serve: an epoll set, which the runtime watches.
type watchSet struct {
	fd     int
	file   *os.File // of fd
	raw    syscall.RawConn
	events [64]unix.EpollEvent
	fired  int // of events, those that the last wait or look has found
	poll   func(fd uintptr) bool
	glance func(fd uintptr)
}

func (s *watchSet) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	s.fd, s.file = fd, os.NewFile(uintptr(fd), "epoll")
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return err
	}
	s.poll = func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), s.events[:], 0)
		s.fired = max(n, 0)
		return n > 0 || err != nil && err != unix.EINTR
	}
	s.glance = func(fd uintptr) { s.poll(fd) }
	return nil
}

// close ends a wait with an error, and all that follow.
func (s *watchSet) close() { s.file.Close() }

// wait waits until connections have fired.
func (s *watchSet) wait() error { return s.raw.Read(s.poll) }

// look finds those that have fired by now.
func (s *watchSet) look() { s.raw.Control(s.glance) }

// at returns the peer and the index of a pipe that has fired.
func (s *watchSet) at(i int) (rank, index int) { return int(s.events[i].Fd), int(s.events[i].Pad) }

// arm watches a pipe until it can be read from, or written to. The caller holds the peer's lock.
func (s *watchSet) arm(pp *pipe, in, out bool) error {
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: int32(pp.p.rank), Pad: int32(pp.index)}
	if in {
		ev.Events |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if out {
		ev.Events |= unix.EPOLLOUT
	}
	op := unix.EPOLL_CTL_MOD
	if !pp.known {
		op, pp.known = unix.EPOLL_CTL_ADD, true
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.fd, op, pp.fd, &ev))
}

// forget ends the watch of a descriptor that is about to be closed, which does so by itself.
func (s *watchSet) forget(fd int) {}
