package zmtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/secure"
)

// listener is a socket that others connect to: a goroutine accepts connections, and each has one of its own from its
// greeting on.
type listener struct {
	l       net.Listener
	kind    string
	o       Options
	serve   func(*conn) error
	limiter secure.AcceptLimiter
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

func (s *listener) listen(addr, kind string, o Options, serve func(*conn) error) (err error) {
	if s.l, err = net.Listen("tcp", addr); err != nil {
		return fmt.Errorf("zmtp: %w", err)
	}
	s.kind, s.o, s.serve, s.conns = kind, o, serve, map[net.Conn]struct{}{}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.tasks.Go(s.accept)
	return nil
}

// Addr returns the address that the socket listens on.
func (s *listener) Addr() net.Addr { return s.l.Addr() }

func (s *listener) accept() {
	for {
		s.limiter.Wait(s.ctx)
		nc, err := s.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.o.log(err) // out of descriptors, or aborted by the peer: both pass
			select {
			case <-s.ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if !s.know(nc) {
			nc.Close()
			continue
		}
		pending := s.limiter.Add(nc)
		s.tasks.Go(func() {
			defer s.forget(nc)
			c, err := greet(nc, s.kind, s.o)
			if !pending.Done(err == nil) && err == nil {
				err = errors.New("zmtp: closed to make room for others")
			}
			if err == nil {
				err = s.serve(c)
			}
			if s.ctx.Err() == nil && err != io.EOF {
				s.o.log(fmt.Errorf("a connection of %v has ended: %w", nc.RemoteAddr(), err))
			}
		})
	}
}

// know notes a connection, unless the socket is closed or has too many.
func (s *listener) know(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) == maxConns {
		return false
	}
	s.conns[nc] = struct{}{}
	return true
}

func (s *listener) forget(nc net.Conn) {
	nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
}

// close ends the listener and its connections, and doesn't wait for their goroutines.
func (s *listener) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.stop()
	for nc := range s.conns {
		nc.Close()
	}
	return s.l.Close()
}
