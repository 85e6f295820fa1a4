package zmtp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The kinds of socket, as their greetings name them.
const (
	req = "REQ"
	rep = "REP"
	pub = "PUB"
	sub = "SUB"
)

// partners has, for each type of socket, the types that it talks to.
var partners = map[string][]string{
	req: {rep, "ROUTER"}, rep: {req, "DEALER"}, pub: {sub, "XSUB"}, sub: {pub, "XPUB"},
}

const (
	greetingSize = 64
	mechanism    = "NULL"
	// maxReady bounds the command that ends a greeting.
	maxReady = 64 << 10
)

// conn is a connection after its greetings.
type conn struct {
	net.Conn
	r  *bufio.Reader
	o  Options
	mu sync.Mutex // one write at a time
}

// greet exchanges greetings on a new connection of a socket of a kind.
func greet(nc net.Conn, kind string, o Options) (*conn, error) {
	c := &conn{Conn: nc, r: bufio.NewReaderSize(nc, 32<<10), o: o}
	if o.Admit != nil {
		if err := o.Admit(nc); err != nil {
			return nil, &refusedError{err}
		}
	}
	nc.SetDeadline(time.Now().Add(greetLimit))
	if _, err := nc.Write(greeting(kind)); err != nil {
		return nil, err
	}
	var theirs [greetingSize]byte
	if _, err := io.ReadFull(c.r, theirs[:]); err != nil {
		return nil, fmt.Errorf("zmtp: no greeting: %w", err)
	}
	if err := checkGreeting(theirs[:]); err != nil {
		return nil, err
	}
	m, err := readMessage(c.r, maxReady)
	if err != nil {
		return nil, fmt.Errorf("zmtp: no end of the greeting: %w", err)
	}
	if err := checkReady(m, kind); err != nil {
		return nil, err
	}
	nc.SetDeadline(time.Time{})
	return c, nil
}

// refusedError says that the other end isn't admitted.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// greeting is what a socket of a kind says first.
func greeting(kind string) []byte {
	b := make([]byte, greetingSize)
	b[0], b[9], b[10] = 0xff, 0x7f, 3
	copy(b[12:], mechanism)
	property := append([]byte{byte(len(socketType))}, socketType...)
	property = append(binary.BigEndian.AppendUint32(property, uint32(len(kind))), kind...)
	return append(b, encodeCommand("READY", property)...)
}

const socketType = "Socket-Type"

func checkGreeting(b []byte) error {
	switch {
	case b[0] != 0xff || b[9] != 0x7f:
		return broken("the other end doesn't speak ZeroMQ's protocol")
	case b[10] < 3:
		return broken("the other end speaks version %d of ZeroMQ's protocol; version 3 is needed", b[10])
	case string(bytes.TrimRight(b[12:32], "\x00")) != mechanism:
		return broken("the other end wants the security mechanism %q; there is none here", b[12:32])
	}
	return nil
}

// checkReady reads the command that ends the other end's greeting, which says what kind of socket it is.
func checkReady(m message, kind string) error {
	if !m.command {
		return broken("a message before the end of the greeting")
	}
	name, body, err := parseCommand(m.frames[0])
	if err != nil {
		return err
	}
	if name != "READY" {
		return broken("the other end says %.20q %.100q instead of READY", name, body)
	}
	for len(body) > 0 {
		k := int(body[0])
		if len(body) < 1+k+4 {
			return broken("half a property")
		}
		key := string(body[1 : 1+k])
		n := binary.BigEndian.Uint32(body[1+k:])
		body = body[1+k+4:]
		if uint64(n) > uint64(len(body)) {
			return broken("half a property")
		}
		value := string(body[:n])
		body = body[n:]
		if strings.EqualFold(key, socketType) {
			if slices.Contains(partners[kind], value) {
				return nil
			}
			return broken("the other end is a socket %.20q, and this one %s", value, kind)
		}
	}
	return broken("the other end doesn't say what socket it is")
}

// read returns the next message, or a command that this end has no answer to.
func (c *conn) read() (message, error) {
	for {
		m, err := readMessage(c.r, c.o.maxMessage())
		if err != nil || !m.command {
			return m, err
		}
		name, body, err := parseCommand(m.frames[0])
		switch {
		case err != nil:
			return m, err
		case name == "PING" && len(body) >= 2: // how long it's good for, and a context to give back
			if err := c.write(net.Buffers{encodeCommand("PONG", body[2:])}); err != nil {
				return m, err
			}
		case name == "PONG":
		default:
			return m, nil
		}
	}
}

// write writes what is in b, and takes it to pieces.
func (c *conn) write(b net.Buffers) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) > 0 {
		var part net.Buffers
		for n := 0; len(b) > 0 && n < portion; {
			f := b[0]
			if room := portion - n; len(f) > room {
				f, b[0] = f[:room], f[room:]
			} else {
				b = b[1:]
			}
			part, n = append(part, f), n+len(f)
		}
		c.SetWriteDeadline(time.Now().Add(stuck))
		if _, err := part.WriteTo(c.Conn); err != nil {
			return err
		}
	}
	return nil
}

// pause is between attempts to connect.
const pause = 10 * time.Millisecond

// dial connects a socket of a kind to an address, where a listener may come later, until ctx ends.
func dial(ctx context.Context, addr, kind string, o Options) (*conn, error) {
	var last error
	for {
		c, err := dialOnce(ctx, addr, kind, o)
		if err == nil {
			return c, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if errors.As(err, new(*refusedError)) || errors.As(err, new(*protocolError)) || isTimeout(err) && ctx.Err() == nil {
			return nil, fmt.Errorf("connecting to %s: %w", addr, err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("connecting to %s: %w (%w)", addr, context.Cause(ctx), last)
		}
	}
}

func dialOnce(ctx context.Context, addr, kind string, o Options) (*conn, error) {
	nc, err := (&net.Dialer{Timeout: greetLimit}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if nc.LocalAddr().String() == nc.RemoteAddr().String() { // no listener, and the system drew this port
		nc.Close()
		return nil, syscall.ECONNREFUSED
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	c, err := greet(nc, kind, o)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}
