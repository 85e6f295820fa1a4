//go:build !linux || chorus_portable

package tcp

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A watchSet tells which connections a keeper has to serve, by poll(2), which every Unix has. Arming a pipe while the
// keeper waits makes the wait begin anew, by a byte in a pipe of its own.
type watchSet struct {
	fired int // of found, those that the last wait or look has found
	found []watched

	mu      sync.Mutex
	armed   map[int]watched // by descriptor
	waiting bool            // in poll(2), for what was armed when it began
	roused  bool            // a byte is under way
	closed  bool
	rouse   [2]int // the pipe; its ends for reading and writing

	fds []unix.PollFd // the last ones asked for: of rouse, and of armed
}

// watched is a pipe, and what it waits for.
type watched struct {
	rank, index int
	events      int16
}

func (s *watchSet) open() error {
	if err := nonblockingPipe(&s.rouse); err != nil {
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
		s.anew()
	} else {
		s.drop()
	}
}

// drop gives the pipe back. The caller holds the lock.
func (s *watchSet) drop() {
	unix.Close(s.rouse[0])
	unix.Close(s.rouse[1])
}

// anew has the wait under way begin anew. The caller holds the lock.
func (s *watchSet) anew() {
	if s.waiting && !s.roused {
		s.roused = true
		unix.Write(s.rouse[1], []byte{0})
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
func (s *watchSet) look() { _ = s.poll(0) } // who waits next gets the error, too

// poll finds those that have fired before a time in milliseconds is over, or somebody has it begin anew; without end if
// that is negative.
func (s *watchSet) poll(limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fired, s.found = 0, s.found[:0]
	if s.closed {
		return net.ErrClosed
	}
	s.fds = append(s.fds[:0], unix.PollFd{Fd: int32(s.rouse[0]), Events: unix.POLLIN})
	for fd, w := range s.armed {
		s.fds = append(s.fds, unix.PollFd{Fd: int32(fd), Events: w.events})
	}
	s.waiting = true
	s.mu.Unlock()
	n, err := unix.Poll(s.fds, limit)
	s.mu.Lock()
	s.waiting = false
	if s.roused {
		var b [1]byte
		unix.Read(s.rouse[0], b[:])
		s.roused = false
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
		// A descriptor that was closed meanwhile may be another pipe's, which is looked after for nothing then.
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
		s.anew()
	}
	return nil
}

// forget ends the watch of a descriptor that is about to be closed.
func (s *watchSet) forget(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.armed[fd]; ok {
		delete(s.armed, fd)
		s.anew()
	}
}
