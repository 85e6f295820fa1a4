package zmtp

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Sub takes what others publish: a socket SUB that connects to any number of them.
type Sub struct {
	topics []string
	o      Options
	came   chan publication
	ctx    context.Context // ends with Close
	stop   context.CancelFunc

	mu    sync.Mutex // that no connection is added to a socket that closes
	tasks sync.WaitGroup
}

// publication is a message, or the end of a connection.
type publication struct {
	frames [][]byte
	err    error
}

// NewSub makes a socket that subscribes to what begins with one of the topics.
func NewSub(o Options, topics ...string) *Sub {
	s := &Sub{topics: topics, o: o, came: make(chan publication, 16)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Dial connects to a PUB at an address, host:port, which may come to listen later, until ctx ends.
func (s *Sub) Dial(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(ErrClosed) })()
	c, err := dial(ctx, addr, sub, s.o)
	if err != nil {
		return err
	}
	var all net.Buffers
	for _, t := range s.topics {
		all = append(all, encode(append([]byte{1}, t...))...)
	}
	if err := c.write(all); err != nil {
		c.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		c.Close()
		return ErrClosed
	}
	end := context.AfterFunc(s.ctx, func() { c.Close() })
	s.tasks.Go(func() {
		defer end()
		defer c.Close()
		for {
			m, err := c.read()
			if err == nil && m.command {
				continue
			}
			if err != nil {
				err = fmt.Errorf("the connection to %s has ended: %w", addr, err)
			}
			select {
			case s.came <- publication{m.frames, err}:
			case <-s.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	return nil
}

// Recv returns the next message of any connection, the end of one as an error, and after Close ErrClosed.
func (s *Sub) Recv() ([][]byte, error) {
	select {
	case p := <-s.came:
		return p.frames, p.err
	case <-s.ctx.Done():
		return nil, ErrClosed
	}
}

// Close ends the socket, and a Dial under way.
func (s *Sub) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.tasks.Wait()
	return nil
}
