package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/secure"
)

const (
	// stuck is how long a client may leave an answer unread.
	stuck = 60 * time.Second
	// maxPending is how much may wait for a client that watches keys and does
	// not read.
	maxPending = 16 << 20
)

// A serverConn is the server's side of one connection. One goroutine reads and answers. A goroutine
// that wakes a waiter posts to it and never waits for it.
type serverConn struct {
	server  *TCPServer
	nc      net.Conn
	in      *wireReader
	dialect Dialect
	waiter  *waiter // the WAIT or BARRIER that is not answered yet
	watches []*watcher
	buf     []byte

	mu      sync.Mutex
	drained sync.Cond // signalled when writing turns false
	pending []byte    // what is to be written, in order
	writing bool      // a goroutine is writing
	err     error     // writing failed
}

func newServerConn(s *TCPServer, nc net.Conn) *serverConn {
	c := &serverConn{server: s, nc: nc}
	c.drained.L = &c.mu
	return c
}

// enter admits the client.
func (c *serverConn) enter() error {
	c.nc.SetDeadline(time.Now().Add(greetLimit))
	nc, err := c.server.admit(c.nc)
	if err != nil {
		return err
	}
	c.server.mu.Lock() // Close may be looking
	c.nc = nc
	c.server.mu.Unlock()
	c.in = newWireReader(nc, c.server.opts.Limits)
	return c.greet()
}

// greet decides the dialect. S1 begins with VALIDATE, that is with a zero byte
// and a number which S0 would take for the length of a gigabyte-long key.
func (c *serverConn) greet() error {
	code, err := c.in.r.Peek(1)
	if err != nil {
		return err
	}
	isS1 := false
	if code[0] == byte(opValidate) {
		head, err := c.in.r.Peek(greetingLen)
		if err != nil {
			return noEOF(err)
		}
		isS1 = binary.LittleEndian.Uint32(head[1:]) == validateMagic
	}
	switch {
	case isS1 && c.server.opts.Dialect == DialectS0:
		return errors.New("the client speaks dialect S1, the server only S0")
	case !isS1 && c.server.opts.Dialect == DialectS1:
		return errors.New("no valid greeting")
	case isS1:
		c.dialect = DialectS1
	default:
		c.dialect = DialectS0
	}
	return nil
}

// serve answers requests until the connection ends, and says why it did, which is never nil. It's the limiter's pending
// until its first request.
func (c *serverConn) serve(pending *secure.PendingConn) error {
	err := c.enter()
	for first := true; ; first = false {
		var r request
		if err == nil {
			r, err = c.in.request(c.dialect)
		}
		if first && !pending.Done(err == nil) && err == nil {
			err = errors.New("closed to make room for others")
		}
		if err != nil {
			return err
		}
		if first {
			c.nc.SetDeadline(time.Time{})
		}
		if err = c.handle(&r); err != nil {
			return fmt.Errorf("%v: %w", r.op, err)
		}
	}
}

// end forgets what the connection asked for.
func (c *serverConn) end() {
	c.nc.Close()
	c.server.table.cancel(c.waiter)
	for _, w := range c.watches {
		c.server.table.unwatch(w)
	}
}

// handle carries out one request and answers it.
func (c *serverConn) handle(r *request) error {
	t := c.server.table
	switch r.op {
	case opValidate:
		if r.nonce != validateMagic {
			return errors.New("bad magic")
		}
	case opPing:
		return c.reply(binary.LittleEndian.AppendUint32(c.buf[:0], r.nonce))
	case opSet:
		t.set(r.keys[0], r.values[0])
	case opAppend:
		t.append(r.keys[0], r.values[0])
	case opMultiSet:
		t.multiSet(r.keys, r.values)
	case opCompareSet:
		return c.replyValues([][]byte{t.compareSet(r.keys[0], r.values[0], r.values[1])})
	case opGet, opMultiGet:
		// Clients wait for the keys first, so that one which is missing was
		// deleted meanwhile; an empty value is what PyTorch's server answers.
		values, _ := t.multiGet(r.keys)
		return c.replyValues(values)
	case opAdd:
		n, err := t.add(r.keys[0], r.number)
		if err != nil {
			return err
		}
		return c.replyNumber(n)
	case opCheck:
		if t.check(r.keys) {
			return c.reply(append(c.buf[:0], replyReady))
		}
		return c.reply(append(c.buf[:0], replyNotReady))
	case opWait:
		t.cancel(c.waiter) // one wait a connection
		if c.waiter = t.wait(r.keys, c.ready); c.waiter == nil {
			return c.reply(append(c.buf[:0], replyReady))
		}
	case opCancelWait:
		t.cancel(c.waiter)
		c.waiter = nil
		return c.reply(append(c.buf[:0], replyCancelled))
	case opBarrier:
		t.cancel(c.waiter)
		w, err := t.barrier(r.keys[0], r.number, c.ready)
		if err != nil {
			return err
		}
		if c.waiter = w; w == nil {
			return c.reply(append(c.buf[:0], replyReady))
		}
	case opNumKeys:
		return c.replyNumber(t.numKeys())
	case opDelete:
		if t.remove(r.keys[0]) {
			return c.replyNumber(1)
		}
		return c.replyNumber(0)
	case opQueuePush:
		t.push(r.keys[0], r.values[0])
	case opQueuePop:
		v, n := t.pop(r.keys[0])
		if err := c.replyNumber(n); err != nil || n == 0 {
			return err
		}
		return c.replyValues([][]byte{v})
	case opQueueLen:
		return c.replyNumber(t.queueLen(r.keys[0]))
	case opListKeys:
		keys := t.listKeys()
		if err := c.replyNumber(int64(len(keys))); err != nil {
			return err
		}
		values := make([][]byte, len(keys))
		for i, k := range keys {
			values[i] = []byte(k)
		}
		return c.replyValues(values)
	case opWatch:
		if err := c.reply(append(c.buf[:0], replyWatching)); err != nil {
			return err
		}
		w := &watcher{key: r.keys[0], change: c.changed}
		c.watches = append(c.watches, w)
		t.watch(w)
	}
	return nil
}

func (c *serverConn) replyNumber(n int64) error {
	return c.reply(appendU64(c.buf[:0], uint64(n)))
}

// replyValues writes values one after the other, in pieces of bounded size.
func (c *serverConn) replyValues(values [][]byte) error {
	b := c.buf[:0]
	for i, v := range values {
		b = appendString(b, v)
		if len(b) >= chunk || i == len(values)-1 {
			if err := c.reply(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	return nil
}

// reply writes b after everything posted before, and returns when it is written.
// b may be the connection's scratch buffer.
func (c *serverConn) reply(b []byte) error {
	if cap(b) <= chunk {
		c.buf = b[:0]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, b...)
	return c.write()
}

// flush writes what is pending.
func (c *serverConn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write()
}

// write writes all that is pending. The caller holds c.mu.
func (c *serverConn) write() error {
	for c.writing {
		c.drained.Wait()
	}
	c.writing = true
	for c.err == nil && len(c.pending) > 0 {
		out := c.pending
		c.pending = nil
		c.mu.Unlock()
		c.nc.SetWriteDeadline(time.Now().Add(stuck))
		_, err := c.nc.Write(out)
		c.mu.Lock()
		if c.pending == nil && cap(out) <= chunk {
			c.pending = out[:0]
		}
		if err != nil {
			c.err = err
			c.nc.Close() // ends the reader, too
		}
	}
	c.writing = false
	c.drained.Broadcast()
	return c.err
}

// post puts b behind what is pending and sees to it that it gets written. It
// never blocks, so that callbacks of the table may call it.
func (c *serverConn) post(b ...byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending)+len(b) > maxPending {
		c.nc.Close()
		return
	}
	c.pending = append(c.pending, b...)
	if !c.writing {
		c.server.serving.Go(func() { c.flush() })
	}
}

// ready answers a WAIT or a BARRIER.
func (c *serverConn) ready() { c.post(replyReady) }

// changed tells a watching client about a key.
func (c *serverConn) changed(kind changeKind, key string, before, after []byte) {
	b := append([]byte(nil), byte(kind))
	c.post(appendString(appendString(appendString(b, key), before), after)...)
}
