package store

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/secure"
)

// errInvalid marks requests that were refused before anything was sent.
var errInvalid = errors.New("store: invalid request")

// past is a deadline that makes reads and writes return at once.
var past = time.Unix(1, 0)

// A clientConn is the client's side of one connection. One goroutine at a time
// uses it.
type clientConn struct {
	nc      net.Conn
	in      *wireReader
	limits  Limits // of what is sent
	dialect Dialect
	buf     []byte
	sent    bool // something of the request under way may have left
	broken  bool // requests and answers do not match any more
}

func newClientConn(nc net.Conn, d Dialect, limits Limits) *clientConn {
	limits = limits.orDefault()
	given := limits
	if given.Value == defaultMaxValue { // another server than PyTorch's takes larger ones
		given.Value = serverMaxValue
	}
	return &clientConn{nc: nc, in: newWireReader(nc, given), limits: limits, dialect: d}
}

// guard makes reads and writes end with ctx. The function that it returns ends
// that; reads and writes have no deadline afterwards.
func (c *clientConn) guard(ctx context.Context) (release func()) {
	c.nc.SetDeadline(time.Time{})
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		c.nc.SetDeadline(past)
		close(fired)
	})
	return func() {
		if !stop() {
			<-fired
		}
		c.nc.SetDeadline(time.Time{})
	}
}

// alive reports whether an idle connection still stands: the server neither
// closed it nor sent anything unasked.
func (c *clientConn) alive() bool {
	if c.in.r.Buffered() > 0 {
		return false
	}
	nc := c.nc
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn() // nothing comes on it unasked, there being no tickets
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		alive = silent(fd)
		return true
	})
	return err == nil && alive
}

// greet sends the greeting of S1 in one write, because PyTorch's server takes
// the first bytes that it reads for all of VALIDATE, and awaits the answer.
func (c *clientConn) greet() error {
	nonce := uint32(os.Getpid()) | 0xFF000000 // see DialectProbe: S0 must find it impossible
	if err := c.send(
		&request{op: opValidate, nonce: validateMagic},
		&request{op: opPing, nonce: nonce},
	); err != nil {
		return err
	}
	got, err := c.in.u32()
	if err == nil && got == binary.LittleEndian.Uint32([]byte(secure.Unwelcome)) {
		return secure.ErrWantsSecret
	}
	if err == nil && got != nonce {
		err = fmt.Errorf("answer %#x to ping %#x", got, nonce)
	}
	return noEOF(err)
}

// send writes requests in one piece.
func (c *clientConn) send(requests ...*request) error {
	b := c.buf[:0]
	for _, r := range requests {
		if err := c.limits.check(r); err != nil {
			return err
		}
		var ok bool
		if b, ok = r.append(b, c.dialect); !ok {
			return unsupported(r.op.String(), "dialect "+c.dialect.String())
		}
	}
	if cap(b) <= chunk {
		c.buf = b
	}
	c.sent = true
	_, err := c.nc.Write(b)
	return err
}

// check refuses what the server would end the connection for.
func (l Limits) check(r *request) error {
	if len(r.keys) > l.Keys {
		return fmt.Errorf("%w: %v: %d keys exceed the limit of %d", errInvalid, r.op, len(r.keys), l.Keys)
	}
	for _, k := range r.keys {
		if len(k) > l.Key {
			return fmt.Errorf("%w: %v: a key of %d bytes exceeds the limit of %d", errInvalid, r.op, len(k), l.Key)
		}
	}
	for _, v := range r.values {
		if len(v) > l.Value {
			return fmt.Errorf("%w: %v: a value of %d bytes exceeds the limit of %d", errInvalid, r.op, len(v), l.Value)
		}
	}
	return nil
}

// confirmed sends a request that has no answer together with one that has, so
// that the server has carried the first out when it answers the second.
func (c *clientConn) confirmed(r *request) error {
	if err := c.send(r, &request{op: opNumKeys}); err != nil {
		return err
	}
	_, err := c.in.i64()
	return err
}

// number sends a request that is answered by a number.
func (c *clientConn) number(r *request) (int64, error) {
	if err := c.send(r); err != nil {
		return 0, err
	}
	return c.in.i64()
}

// value sends a request that is answered by a value.
func (c *clientConn) value(r *request) ([]byte, error) {
	if err := c.send(r); err != nil {
		return nil, err
	}
	return c.in.value()
}

// errCancelled says that the server gave up a WAIT because we asked it to.
var errCancelled = errors.New("wait cancelled")

// wait sends WAIT or BARRIER and blocks until the server answers or ctx ends.
// Then it gives the wait up, after which the connection can be used again: the
// result is errCancelled, or nil if the answer came at the last moment. S0 has
// no way to give up, so that the connection is broken.
func (c *clientConn) wait(ctx context.Context, r *request) error {
	if err := c.send(r); err != nil {
		return err
	}
	b, err := c.in.u8()
	switch {
	case err == nil && b == replyReady:
		return nil
	case err == nil:
		c.broken = true
		return fmt.Errorf("unexpected answer %d to %v", b, r.op)
	case ctx.Err() == nil:
		c.broken = true
		return noEOF(err)
	case c.dialect == DialectS0, errors.Is(ctx.Err(), context.Canceled):
		c.broken = true
		return errCancelled
	}
	if err := c.cancelWait(); err != nil {
		return err
	}
	return errCancelled
}

// cancelWait gives up a WAIT. The server answers "cancelled" in any case; if it
// had answered the WAIT before, that comes first.
func (c *clientConn) cancelWait() error {
	c.nc.SetDeadline(time.Now().Add(graceTime))
	if err := c.send(&request{op: opCancelWait}); err != nil {
		c.broken = true
		return err
	}
	b, err := c.in.u8()
	if err == nil && b == replyReady {
		b, err = c.in.u8()
	}
	if err != nil || b != replyCancelled {
		c.broken = true
		return errors.Join(errCancelled, err)
	}
	return nil
}

// graceTime is how long, past the deadline of a call, the client goes on talking
// to the server to find out what was missing.
const graceTime = 2 * time.Second

// missing asks which of keys do not exist, in one round trip.
func (c *clientConn) missing(keys []string) ([]string, error) {
	requests := make([]*request, len(keys))
	for i, k := range keys {
		requests[i] = &request{op: opCheck, keys: []string{k}}
	}
	if err := c.send(requests...); err != nil {
		c.broken = true
		return nil, err
	}
	var out []string
	for _, k := range keys {
		b, err := c.in.u8()
		if err != nil {
			c.broken = true
			return nil, err
		}
		if b != replyReady {
			out = append(out, k)
		}
	}
	return out, nil
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
