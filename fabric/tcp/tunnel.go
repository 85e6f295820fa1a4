package tcp

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tunnels are the encrypted connections of a fabric. A pipe reads and writes a descriptor of its own, which a TLS
// connection doesn't have. So it gets one end of a socket pair, and two goroutines carry bytes between the other end
// and the connection. That costs two more copies, besides the encryption.
type tunnels struct {
	mu      sync.Mutex
	conns   map[*tls.Conn]struct{}
	copiers sync.WaitGroup
}

// connect connects inner's socket pair to an encrypted connection. Closing the pair's other end closes the
// connection with a goodbye.
func (ts *tunnels) connect(c net.Conn, inner *net.UnixConn) error {
	outer, ok := c.(*tls.Conn)
	if !ok {
		inner.Close()
		return fmt.Errorf("tcp: %T is no encrypted connection", c)
	}
	ts.mu.Lock()
	if ts.conns == nil {
		ts.conns = map[*tls.Conn]struct{}{}
	}
	ts.conns[outer] = struct{}{}
	ts.mu.Unlock()
	ts.copiers.Go(func() {
		var inward sync.WaitGroup
		inward.Go(func() {
			if _, err := io.Copy(inner, outer); err == nil {
				inner.CloseWrite()
			} else {
				inner.Close() // ends what goes outward, too
			}
		})
		io.Copy(outer, inner)
		outer.CloseWrite()
		outer.SetReadDeadline(time.Now().Add(closeGrace)) // the pipe says goodbye, or is gone
		inward.Wait()
		inner.Close()
		outer.Close()
		ts.mu.Lock()
		delete(ts.conns, outer)
		ts.mu.Unlock()
	})
	return nil
}

// close waits until what the pipes have written is on its way; they are closed.
func (ts *tunnels) close() {
	ts.mu.Lock()
	for c := range ts.conns {
		c.SetReadDeadline(time.Unix(1, 0))
		c.SetWriteDeadline(time.Now().Add(closeGrace))
	}
	ts.mu.Unlock()
	ts.copiers.Wait()
}

// pair makes two sockets that are joined: one for the runtime, and the descriptor of the other.
func pair() (*net.UnixConn, int, error) {
	fds, err := socketPair()
	if err != nil {
		return nil, -1, err
	}
	file := os.NewFile(uintptr(fds[0]), "tunnel")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		unix.Close(fds[1])
		return nil, -1, err
	}
	return c.(*net.UnixConn), fds[1], nil
}
