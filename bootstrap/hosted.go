package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// An Address says where a store that some process serves can be reached. It's small and travels as JSON.
type Address struct {
	// Unix is a socket which admits only the same user, in the abstract name space, or by the path of a file where there
	// is no such space; Net is the network name space it's in.
	Unix string `json:"u,omitempty"`
	Net  string `json:"n,omitempty"`
	// TCP is host:port, for other hosts; empty if the process doesn't listen there.
	TCP string `json:"t,omitempty"`
}

// Hosted is a store that this process serves to others for as long as it likes, without being rank 0 of anything.
type Hosted struct {
	server  *store.TCPServer
	address Address
}

// Host serves a store: at a socket of this host, and, if master names a host other than this
// one's loopback, at the address from which packets leave for it. The latter needs a secret; without one
// the store is only reached from this host.
func Host(master string, opts Options) (*Hosted, error) {
	if err := opts.secure(); err != nil {
		return nil, err
	}
	space, err := networkSpace()
	if err != nil {
		return nil, err
	}
	unix, err := listenLocal()
	if err != nil {
		return nil, fmt.Errorf("bootstrap: serving a store: %w", err)
	}
	h := &Hosted{address: Address{Unix: unix.Addr().String(), Net: space}}
	l := multiListener{listeners: []net.Listener{sameUserListener{unix, new(secure.AcceptLimiter)}}}
	if ip := routableAddr(master); ip != nil && opts.Security.Check(ip.String()) == nil {
		tcp, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		if err != nil {
			unix.Close()
			return nil, fmt.Errorf("bootstrap: serving a store at %v: %w", ip, err)
		}
		h.address.TCP = tcp.Addr().String()
		l.listeners = append(l.listeners, tcp)
	}
	h.server, err = store.Serve(l.start(), store.ServerOptions{Timeout: opts.Timeout, Security: *opts.Security,
		OnStarved: opts.OnStarved, Logger: opts.Logger})
	if err != nil {
		l.Close()
		return nil, err
	}
	return h, nil
}

// Local is the store itself.
func (h *Hosted) Local() *store.HashStore { return h.server.Local() }

// Address is where others find it.
func (h *Hosted) Address() Address { return h.address }

// Drain waits until no client is connected, or ctx ends.
func (h *Hosted) Drain(ctx context.Context) error { return h.server.Drain(ctx) }

// Close ends it at once; clients that still use it get an error.
func (h *Hosted) Close() error { return h.server.Close() }

// ErrGone is the error, wrapped, of a store that isn't served any more: its process has closed it, or died.
var ErrGone = errors.New("no process serves the store")

// Reach connects to a store that another process hosts. It tries until ctx ends, except
// that a refused connection is [ErrGone] at once: the store was there when its address was made. A connection
// that breaks later isn't made again, so that waiting for a key there is a way to learn of the process's end.
func Reach(ctx context.Context, at Address, opts Options) (store.Store, error) {
	if err := opts.secure(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	space, err := networkSpace()
	if err != nil {
		return nil, err
	}
	if at.TCP == "" && at.Net != space {
		return nil, errors.New("bootstrap: the store is only reached from its own host; to be reached from others its process needs a secret when it begins (CHORUS_SECRET_FILE)")
	}
	addr, connect := at.TCP, (&net.Dialer{}).DialContext
	if at.Unix != "" && (at.TCP == "" || at.Net == space) {
		addr, connect = at.Unix, dialSameUser
	}
	dial := func(dialing context.Context, network, addr string) (net.Conn, error) {
		c, err := connect(dialing, network, addr)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) { // of a socket with a file, that's gone
			err = fmt.Errorf("%w: %w", ErrGone, err)
			cancel(err)
		}
		return c, err
	}
	st, err := store.DialTCP(ctx, addr, store.TCPOptions{Timeout: opts.Timeout, Security: *opts.Security,
		Reconnect: time.Nanosecond, Dial: dial})
	if err == nil {
		return st, nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrGone) {
		err = cause
	}
	return nil, fmt.Errorf("bootstrap: store at %s: %w", addr, err)
}

// Valid reports whether an address that came from elsewhere can be one.
func (a Address) Valid() error {
	if a.Unix == "" && a.TCP == "" {
		return errors.New("bootstrap: an address without a place")
	}
	if a.Unix != "" && (len(a.Unix) > 100 || !isLocalName(a.Unix)) {
		return fmt.Errorf("bootstrap: %q is no socket in %s", a.Unix, localListenerPlace)
	}
	if a.TCP == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(a.TCP)
	if err == nil && net.ParseIP(host) == nil {
		err = fmt.Errorf("%q is no IP address", host)
	}
	if n, bad := strconv.Atoi(port); err == nil && (bad != nil || n < 1 || n > 65535) {
		err = fmt.Errorf("%q is no port", port)
	}
	if err != nil {
		return fmt.Errorf("bootstrap: address %q: %w", a.TCP, err)
	}
	return nil
}

// networkSpace identifies the name space in which abstract sockets live: that of this host's network, whatever
// CHORUS_HOST_ID says.
func networkSpace() (string, error) {
	boot, err := bootID()
	if err != nil {
		return "", fmt.Errorf("bootstrap: finding out this host's network: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		space, _ = os.Hostname()
	}
	sum := sha256.Sum256([]byte(boot + space))
	return hex.EncodeToString(sum[:8]), nil
}

// routableAddr returns the address of this host from which master is reached, so that other hosts can
// reach it, too. It's nil if master is empty or on the loopback.
func routableAddr(master string) net.IP {
	if master == "" {
		return nil
	}
	ip, err := LocalAddrFor(master)
	if err != nil || ip.IsLoopback() {
		return nil
	}
	return ip
}

// multiListener accepts the connections of several listeners.
type multiListener struct {
	listeners []net.Listener
	accepted  chan acceptResult
	closed    chan struct{}
	once      *sync.Once
}

// An acceptResult is the connection that a listener has accepted, or its error.
type acceptResult struct {
	conn net.Conn
	err  error
}

func (j multiListener) start() net.Listener {
	if len(j.listeners) == 1 {
		return j.listeners[0]
	}
	j.accepted, j.closed, j.once = make(chan acceptResult), make(chan struct{}), new(sync.Once)
	for _, l := range j.listeners {
		go func() {
			for {
				c, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				select {
				case j.accepted <- acceptResult{c, err}:
				case <-j.closed:
					if c != nil {
						c.Close()
					}
					return
				}
				if err != nil { // it passes, as when descriptors are short; the receiver of the error may have a spare one
					time.Sleep(10 * time.Millisecond)
				}
			}
		}()
	}
	return j
}

func (j multiListener) Accept() (net.Conn, error) {
	select {
	case c := <-j.accepted:
		return c.conn, c.err
	case <-j.closed:
		return nil, net.ErrClosed
	}
}

func (j multiListener) Close() error {
	if j.once != nil {
		j.once.Do(func() { close(j.closed) })
	}
	var errs []error
	for _, l := range j.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (j multiListener) Addr() net.Addr { return j.listeners[0].Addr() }
