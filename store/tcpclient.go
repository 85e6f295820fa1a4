package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/secure"
)

// TCPOptions configures a client.
type TCPOptions struct {
	// Timeout bounds calls whose context has no deadline; 0 is DefaultTimeout.
	Timeout time.Duration
	// Dialect is by default S1, or S0 if a server that closes at S1's greeting answers to that.
	Dialect Dialect
	// WorldSize, if positive, makes DialTCP announce this client, as PyTorch's
	// clients do: the rank that serves waits until that many have come.
	WorldSize int
	// WaitForWorkers makes DialTCP wait until WorldSize clients are announced.
	WaitForWorkers bool
	// Reconnect bounds how long a call on an open store tries to reach a server
	// that does not answer any more; 0 is 5 s. DialTCP itself tries until its
	// deadline, because the server may not have started yet.
	Reconnect time.Duration
	// Limits bounds what is sent and what is accepted.
	Limits Limits
	// Security has the secret that the server is given proof of, and has to prove in turn, and TLS. With the zero
	// Policy the client connects as PyTorch's do.
	Security secure.Policy
	// Name is what the client calls itself to a server that demands proof, so that the server can name a client
	// that it refuses. It's cut at 88 bytes.
	Name string
	// Dial replaces the ordinary way to connect. It gets the address as it was
	// given to DialTCP, which then need not be host:port.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// A TCPStore is a client of a TCPServer or of PyTorch's TCPStore.
//
// A connection carries one request at a time. The store keeps a few idle
// connections: a call takes one or opens one, so that a caller that waits holds
// a connection of its own and never holds up another caller. A program that
// calls from one goroutine uses one connection. Every change is confirmed by the
// server before the call returns; that keeps the order of calls across
// connections and costs one round trip.
//
// If a connection breaks, calls that may be repeated are repeated on a new one;
// Add, CompareSet, Append, QueuePush, QueuePop and Barrier are not, unless
// nothing was sent, because the server may have carried them out.
type TCPStore struct {
	addr    string
	opts    TCPOptions
	dialect Dialect
	old     bool // until there is a connection: it may be S0 as well

	mu     sync.Mutex
	idle   []*clientConn // the last used is the last
	busy   map[*clientConn]struct{}
	closed bool
	lacks  map[opcode]bool // whether the server lacks an extended operation, once known
}

var _ Extended = (*TCPStore)(nil)

// maxIdle is how many unused connections a client keeps.
const maxIdle = 2

// A DialError says that a server could not be reached in time.
type DialError struct {
	Addr     string
	Attempts int
	Waited   time.Duration
	Err      error // why the last attempt failed that had the time to
}

func (e *DialError) Error() string {
	return fmt.Sprintf("store: no store at %s after %d attempts in %v: %v", e.Addr, e.Attempts,
		e.Waited.Round(time.Millisecond), e.Err)
}

// Unwrap returns the cause of the last failure.
func (e *DialError) Unwrap() error { return e.Err }

// A ConnError says that the connection broke while a request was under way.
type ConnError struct {
	Op   string
	Addr string
	// Uncertain is set if the server may have carried the request out.
	Uncertain bool
	Err       error
}

func (e *ConnError) Error() string {
	note := ""
	if e.Uncertain {
		note = " (it may or may not have been carried out)"
	}
	return fmt.Sprintf("store: %s: connection to %s broke%s: %v", e.Op, e.Addr, note, e.Err)
}

// Unwrap returns what the connection said.
func (e *ConnError) Unwrap() error { return e.Err }

// Gone reports whether an error of an open store is that its server is there no more, or can't be reached any more.
func Gone(err error) bool {
	if sys.OutOfDescriptors(err) || errors.As(err, new(*TimeoutError)) {
		return false
	}
	return errors.As(err, new(*ConnError)) || errors.As(err, new(*DialError))
}

// DialTCP connects to the server at addr, which is host:port. Until its deadline
// (that of ctx, or opts.Timeout) it tries again when the server can't be
// reached, at growing intervals with some jitter.
func DialTCP(ctx context.Context, addr string, opts TCPOptions) (*TCPStore, error) {
	if opts.Dial == nil {
		if _, port, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("store: dial: %w", err)
		} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("store: dial: %q has no valid port", addr)
		}
		opts.Dial = (&net.Dialer{}).DialContext
	}
	if opts.Reconnect <= 0 {
		opts.Reconnect = 5 * time.Second
	}
	opts.Limits = opts.Limits.orDefault()
	s := &TCPStore{addr: addr, opts: opts, dialect: opts.Dialect, busy: map[*clientConn]struct{}{},
		lacks: map[opcode]bool{}}
	ctx, cancel := deadline(ctx, opts.Timeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open makes the first connection and announces this client.
func (s *TCPStore) open(ctx context.Context) error {
	secret := !s.opts.Security.Secret.IsZero()
	s.old = s.dialect == DialectDefault && !secret && s.opts.Security.TLS == nil
	if s.dialect == DialectDefault || secret { // a server that knows the secret speaks S1
		s.dialect = DialectS1
	}
	c, err := s.connect(ctx, "dial", 0)
	if err != nil {
		return err
	}
	s.old = false
	s.put(c)
	if s.opts.WorldSize <= 0 {
		return nil
	}
	came, err := s.add(ctx, initKey, 1)
	if err != nil {
		return err
	}
	if s.opts.WaitForWorkers {
		return s.waitForWorkers(ctx, came)
	}
	return nil
}

// waitForWorkers polls the count of announced clients, as PyTorch does: no client sets a key when
// the last one comes.
func (s *TCPStore) waitForWorkers(ctx context.Context, came int64) error {
	begin := time.Now()
	for {
		n, err := s.add(ctx, initKey, 0)
		if err == nil && n >= int64(s.opts.WorldSize) {
			return nil
		}
		if err == nil {
			came = n
		} else if ctx.Err() == nil {
			return err
		}
		if !sleep(ctx, 10*time.Millisecond) {
			cause := fmt.Errorf("%d of %d clients came", came, s.opts.WorldSize)
			return ended(ctx, "waiting for workers", begin, 0, nil, cause)
		}
	}
}

// sleep waits for d and reports whether ctx was still alive then.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Addr returns the server's address as it was given to DialTCP.
func (s *TCPStore) Addr() string { return s.addr }

// Dialect returns the dialect in use: S0 or S1.
func (s *TCPStore) Dialect() Dialect { return s.dialect }

// connect opens a connection, trying again until ctx ends or, if patience is
// positive, for that long.
func (s *TCPStore) connect(ctx context.Context, op string, patience time.Duration) (*clientConn, error) {
	begin := time.Now()
	pause := 10 * time.Millisecond
	strange := 0  // how often the server didn't belong to the job
	var why error // of the last attempt that the end of the time didn't cut short: it tells more
	for attempt := 1; ; attempt++ {
		if s.isClosed() {
			return nil, ErrClosed
		}
		c, err := s.connectOnce(ctx)
		if err == nil {
			return c, nil
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ended(ctx, op, begin, 0, nil, err)
		}
		if until, bounded := ctx.Deadline(); why == nil || !bounded || time.Now().Before(until) {
			why = err
		}
		failed := &DialError{Addr: s.addr, Attempts: attempt, Waited: time.Since(begin), Err: why}
		if secure.Foreign(err) {
			strange++
		}
		if patience > 0 && time.Since(begin) > patience || strange == maxStrange || sys.OutOfDescriptors(err) {
			return nil, failed
		}
		// Half of the pause is random, so that a thousand ranks whose server
		// is late do not come back at once.
		if !sleep(ctx, pause/2+rand.N(pause)) {
			failed.Waited = time.Since(begin)
			return nil, ended(ctx, op, begin, 0, nil, failed)
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// connectOnce opens a connection and greets the server.
func (s *TCPStore) connectOnce(ctx context.Context) (*clientConn, error) {
	if s.dialect == DialectProbe {
		d, err := s.probe(ctx)
		if err != nil {
			return nil, err
		}
		s.dialect = d
	}
	// A host that swallows packets must not use up the whole time.
	dialCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	nc, err := s.dial(dialCtx)
	if err != nil {
		return nil, err
	}
	c := newClientConn(nc, s.dialect, s.opts.Limits)
	if s.dialect == DialectS0 {
		return c, nil
	}
	release := c.guard(dialCtx)
	err = c.greet()
	release()
	err = s.opts.Security.TLS.Explain(err)
	if err != nil {
		nc.Close()
		if errors.Is(err, secure.ErrWantsSecret) || errors.Is(err, secure.ErrCertificate) {
			return nil, err
		}
		if closedByPeer(err) && s.old {
			if c := s.connectOld(dialCtx); c != nil {
				s.dialect = DialectS0
				return c, nil
			}
		}
		if closedByPeer(err) && s.opts.Security.Secret.IsZero() {
			err = fmt.Errorf("%w; if the job has a secret, this process needs it, too (CHORUS_SECRET_FILE)", err)
		}
		return nil, fmt.Errorf("the server does not answer the greeting of dialect S1: %w", err)
	}
	return c, nil
}

// connectOld opens a connection with a server that speaks S0, as it shows by an answer; nil if it doesn't.
func (s *TCPStore) connectOld(ctx context.Context) *clientConn {
	nc, err := s.dial(ctx)
	if err != nil {
		return nil
	}
	c := newClientConn(nc, DialectS0, s.opts.Limits)
	release := c.guard(ctx)
	defer release()
	if _, err := c.missing([]string{initKey}); err != nil {
		nc.Close()
		return nil
	}
	return c
}

// maxStrange is how many servers that don't belong to the job are enough. One that is just going down may look like
// one.
const maxStrange = 3

// dial opens a connection, encrypts it if that is wanted, and has both ends prove that they know the secret.
func (s *TCPStore) dial(ctx context.Context) (net.Conn, error) {
	nc, err := s.opts.Dial(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	policy := s.opts.Security
	if policy.Plain == config.PlainUser && !policy.Insecure && !policy.Authenticates() && secure.SameHost(nc) {
		if err := servedBySameUser(nc); err != nil {
			nc.Close()
			return nil, err
		}
	}
	if nc, err = policy.TLS.Client(ctx, nc); err != nil || policy.Secret.IsZero() {
		return nc, err
	}
	nc.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(past) })
	err = policy.TLS.Explain(policy.Secret.Initiate(nc, helloOf(s.opts.Name)))
	stop()
	if err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// servedBySameUser returns an error if there's no secret and another user's process listens on this host: any user can
// take a port first.
func servedBySameUser(nc net.Conn) error {
	if _, ok := nc.(*net.TCPConn); !ok {
		return nil // the dialer has checked it
	}
	if err := secure.ServedBySameUser(nc); errors.Is(err, secure.ErrOtherUser) {
		return err
	}
	return nil // or the kernel doesn't tell
}

// probe finds out the server's dialect with a connection of its own: S1 answers
// the ping, S0 sees a key of impossible length and closes.
func (s *TCPStore) probe(ctx context.Context) (Dialect, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	nc, err := s.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	c := newClientConn(nc, DialectS1, s.opts.Limits)
	release := c.guard(ctx)
	defer release()
	if err := s.opts.Security.TLS.Explain(c.greet()); err == nil {
		return DialectS1, nil
	} else if errors.Is(err, secure.ErrWantsSecret) || errors.Is(err, secure.ErrCertificate) {
		return 0, err
	} else if ctx.Err() != nil {
		return 0, fmt.Errorf("the server answers the probe in neither dialect: %w", err)
	}
	return DialectS0, nil
}

// take returns an idle connection that is still alive, or opens one.
func (s *TCPStore) take(ctx context.Context, op string) (*clientConn, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, ErrClosed
		}
		n := len(s.idle)
		if n == 0 {
			s.mu.Unlock()
			break
		}
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.busy[c] = struct{}{}
		s.mu.Unlock()
		if c.alive() {
			return c, nil
		}
		s.drop(c)
	}
	c, err := s.connect(ctx, op, s.opts.Reconnect)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.nc.Close()
		return nil, ErrClosed
	}
	s.busy[c] = struct{}{}
	return c, nil
}

// put makes a connection idle, or closes it if there are enough.
func (s *TCPStore) put(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, c)
	if s.closed || len(s.idle) >= maxIdle {
		c.nc.Close()
		return
	}
	s.idle = append(s.idle, c)
}

// drop closes a connection that can't be used any more.
func (s *TCPStore) drop(c *clientConn) {
	s.mu.Lock()
	delete(s.busy, c)
	s.mu.Unlock()
	c.nc.Close()
}

func (s *TCPStore) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close closes all connections; calls under way return ErrClosed.
func (s *TCPStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.busy {
		c.nc.Close()
	}
	for _, c := range s.idle {
		c.nc.Close()
	}
	s.idle = nil
	return nil
}

// call sends requests on one connection and has exchange read the answer. A connection that breaks
// is tried again if once is false. ctx has a deadline.
func (s *TCPStore) call(ctx context.Context, op string, once bool, exchange func(*clientConn) error) error {
	begin := time.Now()
	for attempt := 1; ; attempt++ {
		c, err := s.take(ctx, op)
		if err != nil {
			return err
		}
		c.sent = false
		release := c.guard(ctx)
		err = exchange(c)
		release()
		if err == nil {
			s.put(c)
			return nil
		}
		if _, ok := errors.AsType[*TimeoutError](err); ok && !c.broken {
			s.put(c)
			return err
		}
		s.drop(c)
		switch {
		case s.isClosed():
			return ErrClosed
		case errors.Is(err, errInvalid), errors.Is(err, errors.ErrUnsupported):
			return err
		case ctx.Err() != nil:
			if _, ok := errors.AsType[*TimeoutError](err); ok {
				return err
			}
			return ended(ctx, op, begin, 0, nil, err)
		case once && c.sent, attempt == 3:
			return &ConnError{Op: op, Addr: s.addr, Uncertain: once && c.sent, Err: err}
		}
	}
}
