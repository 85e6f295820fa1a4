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

	"github.com/chorus-comms/chorus/secure"
)

// A Relay gives a store that demands proofs to clients that can't prove anything, such as PyTorch's. It listens on the
// loopback, admits processes of the same user, and forwards their requests over connections of its own. These
// authenticate, and are encrypted as its options say.
type Relay struct {
	upstream *TCPStore // only dials
	listener net.Listener
	opts     RelayOptions
	serving  sync.WaitGroup
	limiter  secure.AcceptLimiter
	refusals refusals
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
}

// RelayOptions configures a Relay.
type RelayOptions struct {
	// Security is what the store demands.
	Security secure.Policy
	// OnRefused, if not nil, is told of the first client that was refused because it isn't a process of the same user,
	// a *PlainError.
	OnRefused func(error)
	// Logger is told why a connection was ended; nil is silence.
	Logger *slog.Logger
}

// NewRelay begins to relay to the store at addr, which is host:port.
func NewRelay(addr string, opts RelayOptions) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("store: relay: %w", err)
	}
	r := &Relay{
		upstream: &TCPStore{addr: addr, opts: TCPOptions{Security: opts.Security, Dial: (&net.Dialer{}).DialContext}},
		listener: l, opts: opts, refusals: refusals{on: opts.OnRefused},
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.serving.Go(r.accept)
	return r, nil
}

// Addr returns the address that the relay listens on.
func (r *Relay) Addr() *net.TCPAddr { return r.listener.Addr().(*net.TCPAddr) }

// Close ends the relay and all connections.
func (r *Relay) Close() error {
	r.stop()
	err := r.listener.Close()
	r.serving.Wait()
	return err
}

func (r *Relay) accept() {
	for {
		r.limiter.Wait(r.ctx)
		c, err := r.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // it passes, as when descriptors are short
			r.log("accept", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		pending := r.limiter.Add(c)
		r.serving.Go(func() {
			defer c.Close()
			defer context.AfterFunc(r.ctx, func() { c.Close() })()
			err := secure.SameUser(c)
			if pending.Done(err == nil); err != nil {
				refused := &PlainError{Peer: peerOf(c), Err: err}
				r.log("connection refused", refused)
				r.refusals.report(c, "", refused)
				return
			}
			if err := r.pass(c); err != nil && !errors.Is(err, net.ErrClosed) {
				r.log("connection ended", err)
			}
		})
	}
}

// pass connects a client with the store until one of them ends the connection.
func (r *Relay) pass(client net.Conn) error {
	ctx, cancel := context.WithTimeout(r.ctx, greetLimit)
	defer cancel()
	server, err := r.upstream.dial(ctx)
	if err != nil {
		return err
	}
	defer server.Close()
	defer context.AfterFunc(r.ctx, func() { server.Close() })()
	server.SetDeadline(time.Time{})
	// Everything that a client sent before it closed arrives; then the connection to the store
	// closes, too.
	r.serving.Go(func() {
		io.Copy(server, client)
		if half, ok := server.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			server.Close()
		}
	})
	_, err = io.Copy(client, server)
	return err
}

func (r *Relay) log(what string, err error) {
	if r.opts.Logger != nil {
		r.opts.Logger.Debug("store: relay: "+what, "error", err)
	}
}
