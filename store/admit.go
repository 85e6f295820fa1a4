package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/secure"
)

// authHello begins the hello of a client that has a secret, which precedes its proof; what follows, up to helloBytes,
// is what the client calls itself. Neither dialect has an operation of its first byte, so that a server which knows
// nothing of it, such as PyTorch's, ends the connection.
const (
	authHello  = "\xffCHORUS\x02"
	helloBytes = 96
)

// helloOf is the hello of a client of that name, of which the end is left out if it's long.
func helloOf(name string) []byte {
	b := make([]byte, helloBytes)
	copy(b[copy(b, authHello):], name)
	return b
}

// nameIn is what a client calls itself in its hello. It's text for a console, whatever was sent.
func nameIn(hello []byte) string {
	name, _, _ := bytes.Cut(hello[len(authHello):], []byte{0})
	return plain.Line(string(name))
}

// tlsHandshake is the first byte of every TLS connection (RFC 8446, section 5.1).
const tlsHandshake = 0x16

// greetLimit is how long a client may take to say who it is.
const greetLimit = 30 * time.Second

// replayConn is a connection of which the first byte has been read.
type replayConn struct {
	net.Conn
	first []byte
}

func (r *replayConn) Read(b []byte) (int, error) {
	if len(r.first) > 0 && len(b) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// admit decides whether a new client may use the store, before anything else is read, and returns the connection
// to go on with.
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
		conn, err = policy.TLS.Server(ctx, &replayConn{nc, first[:]})
		if err == nil {
			_, err = io.ReadFull(conn, first[:])
			err = policy.TLS.Explain(err)
		}
		if errors.Is(err, secure.ErrCertificate) {
			return nil, s.refuse(nc, "", err)
		}
		if err != nil {
			return nil, err
		}
	}
	if first[0] == tlsHandshake && policy.TLS == nil {
		sendUnwelcome(conn)
		return nil, s.refuse(nc, "", errors.New("it uses TLS, but this process doesn't (CHORUS_TLS)"))
	}
	if first[0] != authHello[0] {
		if err := s.admitPlain(nc, encrypted); err != nil {
			if first[0] == byte(opValidate) { // a client of a store, and no mere noise
				sendUnwelcome(conn)
			}
			s.refusals.report(nc, "", err)
			return nil, err
		}
		return &replayConn{conn, bytes.Clone(first[:])}, nil
	}
	hello := make([]byte, helloBytes)
	hello[0] = first[0]
	if _, err := io.ReadFull(conn, hello[1:]); err != nil {
		return nil, err
	}
	name := nameIn(hello)
	decline := func(says error, why string) (net.Conn, error) {
		if secure.Decline(conn, says) == nil {
			closeGracefully(conn)
		}
		return nil, s.refuse(nc, name, errors.New(why))
	}
	switch {
	case !bytes.HasPrefix(hello, []byte(authHello)):
		return nil, errors.New("no valid greeting")
	case policy.TLS != nil && !encrypted:
		return decline(secure.ErrWantsTLS, "it doesn't use TLS, but this process does (CHORUS_TLS)")
	case policy.Secret.IsZero():
		return decline(secure.ErrNoSecret, "it has a secret, but this process has none (CHORUS_SECRET_FILE)")
	}
	err := policy.Secret.Respond(conn, hello)
	if errors.Is(err, secure.ErrRefused) {
		err = s.refuse(nc, name, errors.New("its proof is by another secret than this process's (CHORUS_SECRET_FILE)"))
	}
	return conn, err
}

// sendUnwelcome tells a client that it's refused.
func sendUnwelcome(conn net.Conn) {
	if _, err := io.WriteString(conn, secure.Unwelcome); err == nil {
		closeGracefully(conn)
	}
}

// closeGracefully ends what is sent to a client, and reads for a moment what it sends, so that closing doesn't discard
// the last answer.
func closeGracefully(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(time.Second))
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		io.CopyN(io.Discard, conn, chunk)
	}
}

// refuse makes the error for a client that is set up otherwise, and tells of it.
func (s *TCPServer) refuse(nc net.Conn, name string, why error) error {
	err := &RefusedError{Peer: peerOf(nc), Name: name, Err: why}
	s.refusals.report(nc, name+why.Error(), err)
	return err
}

// peerOf names the process at the other end: by its address, or, if that has none, by what the kernel says.
func peerOf(nc net.Conn) string {
	if u, ok := nc.(*net.UnixConn); ok {
		if uid, pid, err := secure.Peer(u); err == nil {
			return fmt.Sprintf("process %d of user %d", pid, uid)
		}
	}
	return nc.RemoteAddr().String()
}

// refusals tells of the clients that are refused: of the first of each host, name and reason, and of a few in all,
// since any process can be refused.
type refusals struct {
	mu       sync.Mutex
	reported map[string]bool
	on       func(error)
}

const maxRefusals = 16

func (r *refusals) report(nc net.Conn, what string, err error) {
	if r.on == nil {
		return
	}
	host, _, split := net.SplitHostPort(nc.RemoteAddr().String())
	if split != nil {
		host = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := host + " " + what; !r.reported[key] && len(r.reported) < maxRefusals {
		if r.reported == nil {
			r.reported = map[string]bool{}
		}
		r.reported[key] = true
		r.on(err)
	}
}

// A RefusedError says that a client of Chorus was refused because it has another secret than this process, or is set up
// otherwise.
type RefusedError struct {
	Peer string // its address
	Name string // what it calls itself, without proof; may be empty
	Err  error  // what differs
}

func (e *RefusedError) Error() string {
	who := e.Peer
	if e.Name != "" {
		who += fmt.Sprintf(", which calls itself %s,", e.Name)
	}
	return fmt.Sprintf("%s was refused: %v", who, e.Err)
}

// Unwrap returns what differs.
func (e *RefusedError) Unwrap() error { return e.Err }

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
		if err == nil || !errors.Is(err, secure.ErrOtherUser) && !policy.Authenticates() {
			return nil
		}
		return &PlainError{Peer: peerOf(nc), Err: err}
	case policy.Authenticates() || policy.TLS != nil:
		return &PlainError{Peer: peerOf(nc)}
	}
	return nil
}

// A PlainError says that a client was refused which speaks the protocol of PyTorch's TCPStore without proving that it
// knows the secret of the job.
type PlainError struct {
	Peer string
	Err  error // why it isn't taken for a process of the same user; nil if that wouldn't help
}

func (e *PlainError) Error() string {
	why := ""
	if e.Err != nil {
		why = fmt.Sprintf(" (%v)", e.Err)
	}
	return fmt.Sprintf("%s connected without the secret of the job, as PyTorch's clients do and ranks without CHORUS_SECRET_FILE, and was refused%s; "+
		"CHORUS_STORE_PLAIN=any admits such clients", e.Peer, why)
}

// Unwrap returns the reason.
func (e *PlainError) Unwrap() error { return e.Err }
