//go:build !linux || chorus_portable

package tcp

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A watchSet tells which connections a poller has to serve, by poll(2), which every Unix has. Arming a pipe while the
// poller waits restarts the wait, by a byte in a pipe of its own.
type watchSet struct {
	fired int // of found, those that the last wait or look has found
	found []watched

	mu          sync.Mutex
	armed       map[int]watched // by descriptor
	waiting     bool            // in poll(2), for what was armed when it began
	restarting  bool            // a byte is under way
	closed      bool
	restartPipe [2]int // the pipe; its ends for reading and writing

	fds []unix.PollFd // the last ones asked for: of restartPipe, and of armed
}

// watched is a pipe, and what it waits for.
type watched struct {
	rank, index int
	events      int16
}

func (s *watchSet) open() error {
	if err := nonblockingPipe(&s.restartPipe); err != nil {
		return err
	}
	s.armed = map[int]watched{}
	return nil
}

// close ends a wait with an error, and all that follow.
func (s *watchSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.waiting {
		s.restart()
	} else {
		s.drop()
	}
}

// drop gives the pipe back. The caller holds the lock.
func (s *watchSet) drop() {
	unix.Close(s.restartPipe[0])
	unix.Close(s.restartPipe[1])
}

// restart has the wait under way begin anew. The caller holds the lock.
func (s *watchSet) restart() {
	if s.waiting && !s.restarting {
		s.restarting = true
		unix.Write(s.restartPipe[1], []byte{0})
	}
}

// wait waits until connections have fired.
func (s *watchSet) wait() error {
	for {
		if err := s.poll(-1); err != nil || s.fired > 0 {
			return err
		}
	}
}

// look finds those that have fired by now.
func (s *watchSet) look() { _ = s.poll(0) } // the next wait gets the error, too

// poll finds those that have fired within limit milliseconds, or until restart is called; without end if limit is
// negative.
func (s *watchSet) poll(limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fired, s.found = 0, s.found[:0]
	if s.closed {
		return net.ErrClosed
	}
	s.fds = append(s.fds[:0], unix.PollFd{Fd: int32(s.restartPipe[0]), Events: unix.POLLIN})
	for fd, w := range s.armed {
		s.fds = append(s.fds, unix.PollFd{Fd: int32(fd), Events: w.events})
	}
	s.waiting = true
	s.mu.Unlock()
	n, err := unix.Poll(s.fds, limit)
	s.mu.Lock()
	s.waiting = false
	if s.restarting {
		var b [1]byte
		unix.Read(s.restartPipe[0], b[:])
		s.restarting = false
	}
	switch {
	case s.closed:
		s.drop()
		return net.ErrClosed
	case err == unix.EINTR:
		return nil
	case err != nil:
		return os.NewSyscallError("poll", err)
	case n == 0:
		return nil
	}
	for _, p := range s.fds[1:] {
		if p.Revents == 0 {
			continue
		}
		// A descriptor that was closed meanwhile may be another pipe's, which is then polled once without need.
		if w, ok := s.armed[int(p.Fd)]; ok {
			delete(s.armed, int(p.Fd))
			s.found = append(s.found, w)
		}
	}
	s.fired = len(s.found)
	return nil
}

// at returns the peer and the index of a pipe that has fired.
func (s *watchSet) at(i int) (rank, index int) { return s.found[i].rank, s.found[i].index }

// arm watches a pipe until it can be read from, or written to. The caller holds the peer's lock.
func (s *watchSet) arm(pp *pipe, in, out bool) error {
	w := watched{rank: pp.p.rank, index: pp.index}
	if in {
		w.events |= unix.POLLIN
	}
	if out {
		w.events |= unix.POLLOUT
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed[pp.fd] != w {
		s.armed[pp.fd] = w
		s.restart()
	}
	return nil
}

// forget ends the watch of a descriptor that is about to be closed.
func (s *watchSet) forget(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.armed[fd]; ok {
		delete(s.armed, fd)
		s.restart()
	}
}
