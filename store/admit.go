package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
)

// authHello precedes the proof of a client that has a secret. Neither dialect has an operation of its first byte, so
// that a server which knows nothing of it, such as PyTorch's, ends the connection.
var authHello = []byte("\xffCHORUS\x01")

// tlsHandshake is the first byte of every TLS connection (RFC 8446, section 5.1).
const tlsHandshake = 0x16

// greetLimit is how long a client may take to say who it is.
const greetLimit = 30 * time.Second

// unread is a connection of which the first byte has been read.
type unread struct {
	net.Conn
	first []byte
}

func (r *unread) Read(b []byte) (int, error) {
	if len(r.first) > 0 && len(b) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// admit finds out whether whoever has connected may use the store, before anything else is read, and returns the connection to go on with.
func (s *TCPServer) admit(nc net.Conn) (net.Conn, error) {
	policy := s.opts.Security
	var first [1]byte
	if _, err := io.ReadFull(nc, first[:]); err != nil {
		return nil, err
	}
	encrypted := first[0] == tlsHandshake && policy.TLS != nil
	conn := nc
	if encrypted {
		ctx, cancel := context.WithTimeout(s.ctx, greetLimit)
		defer cancel()
		var err error
		if conn, err = policy.TLS.Server(ctx, &unread{nc, first[:]}); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, first[:]); err != nil {
			return nil, err
		}
	}
	if first[0] != authHello[0] {
		if err := s.admitPlain(nc, encrypted); err != nil {
			if refused, ok := errors.AsType[*PlainError](err); ok && s.opts.OnPlain != nil {
				s.plain.Do(func() { s.opts.OnPlain(refused) })
			}
			return nil, err
		}
		return &unread{conn, bytes.Clone(first[:])}, nil
	}
	var rest [7]byte
	if _, err := io.ReadFull(conn, rest[:]); err != nil {
		return nil, err
	}
	switch {
	case !bytes.Equal(rest[:], authHello[1:]):
		return nil, errors.New("no valid greeting")
	case policy.TLS != nil && !encrypted:
		return nil, errors.New("the client doesn't encrypt the connection, but this server wants TLS")
	case policy.Secret.IsZero():
		return nil, errors.Join(errors.New("the client has a secret, this server has none"), secure.Decline(conn))
	}
	return conn, policy.Secret.Respond(conn, authHello)
}

// admitPlain decides about a client that doesn't prove that it knows the secret, such as PyTorch's.
func (s *TCPServer) admitPlain(nc net.Conn, encrypted bool) error {
	policy := s.opts.Security
	switch {
	case encrypted && policy.Secret.IsZero(): // it has shown a certificate
		return nil
	case policy.Plain == config.PlainAny:
		return nil
	case policy.Plain == config.PlainUser && !policy.Insecure:
		err := secure.SameUser(nc)
		if err == nil || !errors.Is(err, secure.ErrStranger) && !policy.Authenticates() {
			return nil
		}
		return &PlainError{Peer: nc.RemoteAddr().String(), Err: err}
	case policy.Authenticates() || policy.TLS != nil:
		return &PlainError{Peer: nc.RemoteAddr().String()}
	}
	return nil
}

// A PlainError says that a client was refused which speaks the protocol of PyTorch's TCPStore without proving that it knows the secret of the job.
type PlainError struct {
	Peer string
	Err  error // why it isn't taken for a process of the same user; nil if that wouldn't help
}

func (e *PlainError) Error() string {
	why := ""
	if e.Err != nil {
		why = fmt.Sprintf(" (%v)", e.Err)
	}
	return fmt.Sprintf("%s connected without the secret of the job, as PyTorch's clients do, and was refused%s; CHORUS_STORE_PLAIN=any admits such clients", e.Peer, why)
}

// Unwrap returns the reason.
func (e *PlainError) Unwrap() error { return e.Err }
