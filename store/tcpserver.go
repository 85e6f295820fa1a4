package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/secure"
)

// ServerOptions configures a TCPServer. The zero value serves both dialects with
// the limits of PyTorch's own server.
type ServerOptions struct {
	// Dialect is DialectDefault to let each connection speak its own, or S0 or
	// S1 to refuse the other.
	Dialect Dialect
	// Limits bounds keys and values.
	Limits Limits
	// Timeout bounds calls on Local whose context has no deadline; 0 is
	// DefaultTimeout. Clients have timeouts of their own.
	Timeout time.Duration
	// Security says who may connect. With a secret every client has to prove that it knows it, apart from those that
	// Security.Plain admits; with TLS every connection is encrypted, again apart from those. The zero Policy admits
	// everybody.
	Security secure.Policy
	// OnRefused, if not nil, is called when a client was refused. The error is a *PlainError if the client doesn't
	// prove that it knows the secret. It's a *RefusedError if the client has another secret, doesn't agree on TLS, or
	// exceeds a limit. The server calls it once for each host, name and reason, a few times in all, one call at a time.
	OnRefused func(error)
	// OnStarved, if not nil, is called each time that this process has no descriptor for a client that connects. It
	// must not wait.
	OnStarved func(error)
	// Logger is told why a connection was ended; nil is silence.
	Logger *slog.Logger
}

// A TCPServer serves PyTorch's TCPStore protocol. No message of a peer can make
// it allocate more than has arrived, or take it down; a peer that breaks the
// protocol loses its connection.
type TCPServer struct {
	table    *table
	opts     ServerOptions
	listener net.Listener
	local    *HashStore
	serving  sync.WaitGroup
	limiter  secure.AcceptLimiter
	spare    sys.SpareFD
	refusals refusals
	ctx      context.Context // ends with Close
	stop     context.CancelFunc

	mu     sync.Mutex
	conns  map[*serverConn]struct{}
	empty  chan struct{} // closed when the last connection has gone
	closed bool
}

// ListenTCP serves at addr, which is host:port. Port 0 takes any free port. An empty host means all addresses of the
// machine, IPv4 and IPv6, if opts.Security has a secret or certificates or permits to do without, and otherwise the
// loopback address.
func ListenTCP(addr string, opts ServerOptions) (*TCPServer, error) {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" && opts.Security.Check("") != nil {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("store: listen: %w", err)
	}
	s, err := Serve(l, opts)
	if err != nil {
		l.Close()
	}
	return s, err
}

// Serve serves the connections of a listener of any kind, which it owns from then
// on.
func Serve(l net.Listener, opts ServerOptions) (*TCPServer, error) {
	if opts.Dialect == DialectProbe {
		return nil, errors.New("store: a server can't probe: its dialect is S0, S1 or default")
	}
	if opts.Limits.Value <= 0 {
		opts.Limits.Value = serverMaxValue
	}
	s := &TCPServer{
		table:    newTable(),
		opts:     opts,
		refusals: refusals{on: opts.OnRefused},
		listener: l,
		conns:    map[*serverConn]struct{}{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.local = newHash(s.table, "/", opts.Timeout)
	if err := s.spare.Keep(); err != nil {
		return nil, fmt.Errorf("store: serving: %w", err)
	}
	s.serving.Go(s.accept)
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *TCPServer) Addr() net.Addr { return s.listener.Addr() }

// Port returns the TCP port that the server listens on, or 0 if there is none.
func (s *TCPServer) Port() int {
	if a, ok := s.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// Local returns the store itself, for the process that serves it: the same keys
// that clients see, without a connection.
func (s *TCPServer) Local() *HashStore { return s.local }

// Waiting returns how many calls of clients wait for key. A client that waits for a key which is never written shows
// that it's alive: its connection ends with its process.
func (s *TCPServer) Waiting(key string) int { return s.table.waiting(wireKey(key)) }

func (s *TCPServer) accept() {
	for {
		s.limiter.Wait(s.ctx)
		c, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors or aborted by the peer: neither ends the server, and both pass. A
			// client that can't be served is not left waiting.
			s.log("accept", "error", err)
			if sys.OutOfDescriptors(err) && sys.AcceptPending(s.listener) {
				if s.opts.OnStarved != nil {
					s.opts.OnStarved(err)
				}
				s.spare.Lend(func() {
					if c, err := s.listener.Accept(); err == nil {
						c.Close()
					}
				})
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		s.start(c)
	}
}

func (s *TCPServer) log(msg string, args ...any) {
	if s.opts.Logger != nil {
		s.opts.Logger.Info("store server: "+msg, args...)
	}
}

// start serves one connection on a goroutine of its own.
func (s *TCPServer) start(nc net.Conn) {
	c := newServerConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		nc.Close()
		return
	}
	if len(s.conns) == 0 {
		s.empty = make(chan struct{})
	}
	s.conns[c] = struct{}{}
	pending := s.limiter.Add(nc)
	s.serving.Go(func() {
		err := c.serve(pending)
		c.end()
		s.mu.Lock()
		delete(s.conns, c)
		if len(s.conns) == 0 {
			close(s.empty)
		}
		s.mu.Unlock()
		if errors.As(err, new(*limitError)) {
			s.refuse(nc, "", err)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			s.log("connection ended", "peer", nc.RemoteAddr().String(), "error", err)
		}
	})
}

// Drain waits until no client is connected, or until ctx ends. A process that
// serves others calls it before Close, so that no client loses the store while it is in use.
func (s *TCPServer) Drain(ctx context.Context) error {
	s.mu.Lock()
	n, empty := len(s.conns), s.empty
	s.mu.Unlock()
	if n == 0 {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		n = len(s.conns)
		s.mu.Unlock()
		return fmt.Errorf("store: drain: %d clients still connected: %w", n, context.Cause(ctx))
	}
}

// Close ends all connections and the listener, and closes Local.
func (s *TCPServer) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.stop()
	for c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.local.Close()
	s.serving.Wait()
	s.spare.Close()
	return err
}
