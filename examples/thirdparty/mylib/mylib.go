// Package mylib stands in for a vendor's communication library: it knows nothing of Chorus. Ranks find each other by
// addresses, send each other tagged messages, and have one collective, the sum over some of them.
//
// Calls don't wait: each has a Request, whose Done is called once, with the outcome, on any goroutine.
package mylib

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Tag is what a receive and a message must have in common.
type Tag [16]byte

// Any is the source of a receive that takes a message from any rank.
const Any = -1

// Errors of calls.
var (
	ErrClosed   = errors.New("mylib: closed")
	ErrCanceled = errors.New("mylib: canceled")
)

// GoneError reports a peer that can't send or receive any more.
type GoneError struct {
	Peer int
	Left bool // it has closed its end; else its connection broke
	Err  error
}

func (e *GoneError) Error() string { return fmt.Sprintf("mylib: peer %d is gone: %v", e.Peer, e.Err) }

// Port is a rank that can be connected to.
type Port struct{ ln net.Listener }

// Listen opens a port on a host.
func Listen(host string) (*Port, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	return &Port{ln}, nil
}

// Addr is what the other ranks must know of this one.
func (p *Port) Addr() string { return p.ln.Addr().String() }

// Close closes a port that isn't connected.
func (p *Port) Close() error { return p.ln.Close() }

// Comm is a rank that is connected to all others.
type Comm struct {
	rank, size int
	peers      []*peer // nil for this rank

	mu       sync.Mutex
	posted   []*Request // receives, in order
	arrived  []*message // that no receive was there for, in order
	gone     map[int]*GoneError
	closed   bool
	closing  bool
	sending  sync.WaitGroup
	handlers sync.WaitGroup
}

// Request is a call under way, which is the library's until it's done.
type Request struct {
	Peer int // to, or from
	Tag  Tag
	// Head and Body are one message. A receive's head is filled; its body may be shorter than Body, or longer, and is
	// left out then.
	Head, Body []byte
	// Done gets the number of bytes that the message's body has, and its sender.
	Done func(n, from int, err error)
}

type message struct {
	from int
	tag  Tag
	data []byte
}

// peer is the connection to another rank.
type peer struct {
	c    *Comm
	rank int
	conn net.Conn

	mu    sync.Mutex
	work  *sync.Cond
	queue []*Request
	end   bool
	cut   bool // nothing is sent any more
}

// Connect connects this rank with all others. addrs are theirs, by rank.
func (p *Port) Connect(ctx context.Context, rank int, addrs []string) (*Comm, error) {
	defer p.ln.Close()
	stop := context.AfterFunc(ctx, func() { p.ln.Close() })
	defer stop()
	c := &Comm{rank: rank, size: len(addrs), peers: make([]*peer, len(addrs)), gone: map[int]*GoneError{}}
	fail := func(err error) (*Comm, error) {
		for _, x := range c.peers {
			if x != nil {
				x.conn.Close()
			}
		}
		return nil, err
	}
	for r := range rank { // lower ranks are called, higher ones call
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addrs[r])
		if err == nil {
			err = binary.Write(conn, binary.LittleEndian, uint32(rank))
		}
		if err != nil {
			return fail(fmt.Errorf("mylib: peer %d: %w", r, err))
		}
		c.peers[r] = newPeer(c, r, conn)
	}
	for range len(addrs) - 1 - rank {
		conn, err := p.ln.Accept()
		var r uint32
		if err == nil {
			err = binary.Read(conn, binary.LittleEndian, &r)
		}
		if err != nil || int(r) <= rank || int(r) >= len(addrs) || c.peers[r] != nil {
			return fail(fmt.Errorf("mylib: waiting for the others: %w", errors.Join(err, context.Cause(ctx))))
		}
		c.peers[r] = newPeer(c, int(r), conn)
	}
	for _, x := range c.peers {
		if x != nil {
			c.sending.Go(x.write)
			c.handlers.Go(x.read)
		}
	}
	return c, nil
}

func newPeer(c *Comm, rank int, conn net.Conn) *peer {
	x := &peer{c: c, rank: rank, conn: conn}
	x.work = sync.NewCond(&x.mu)
	return x
}

// Rank and Size place this rank.
func (c *Comm) Rank() int { return c.rank }
func (c *Comm) Size() int { return c.size }

// Send sends a message. It may be written again when the request is done.
func (c *Comm) Send(r *Request) {
	if r.Peer == c.rank {
		c.take(&message{c.rank, r.Tag, slices.Concat(r.Head, r.Body)})
		r.Done(len(r.Body), r.Peer, nil)
		return
	}
	if err := c.failed(r.Peer); err != nil {
		r.Done(0, r.Peer, err)
		return
	}
	x := c.peers[r.Peer]
	x.mu.Lock()
	over := x.end
	if !over {
		x.queue = append(x.queue, r)
		x.work.Signal()
	}
	x.mu.Unlock()
	if over {
		r.Done(0, r.Peer, first(c.failed(r.Peer), ErrClosed))
	}
}

func first(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// failed returns why a peer can't be reached.
func (c *Comm) failed(peer int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if e := c.gone[peer]; e != nil {
		return e
	}
	return nil
}

// Recv receives a message.
func (c *Comm) Recv(r *Request) {
	c.mu.Lock()
	i := slices.IndexFunc(c.arrived, r.matches)
	if i < 0 {
		err := c.hopeless(r)
		if err == nil {
			c.posted = append(c.posted, r)
		}
		c.mu.Unlock()
		if err != nil {
			r.Done(0, r.Peer, err)
		}
		return
	}
	m := c.arrived[i]
	c.arrived = slices.Delete(c.arrived, i, i+1)
	c.mu.Unlock()
	r.fill(m)
}

func (r *Request) matches(m *message) bool {
	return r.Tag == m.tag && (r.Peer == Any || r.Peer == m.from)
}

func (r *Request) fill(m *message) {
	body := m.data[copy(r.Head, m.data):]
	if len(body) <= len(r.Body) {
		copy(r.Body, body)
	}
	r.Done(len(body), m.from, nil)
}

// hopeless returns why a receive can't be served any more. The caller holds the lock.
func (c *Comm) hopeless(r *Request) error {
	switch {
	case c.closed:
		return ErrClosed
	case r.Peer != Any && c.gone[r.Peer] != nil:
		return c.gone[r.Peer]
	case r.Peer == Any && c.size > 1 && len(c.gone) == c.size-1:
		for _, e := range c.gone {
			return e
		}
	}
	return nil
}

// take takes a message in.
func (c *Comm) take(m *message) {
	c.mu.Lock()
	i := slices.IndexFunc(c.posted, func(r *Request) bool { return r.matches(m) })
	if i < 0 {
		c.arrived = append(c.arrived, m)
		c.mu.Unlock()
		return
	}
	r := c.posted[i]
	c.posted = slices.Delete(c.posted, i, i+1)
	c.mu.Unlock()
	r.fill(m)
}

// Cancel withdraws a call, if it isn't under way. It's done in any case, soon.
func (c *Comm) Cancel(r *Request) {
	found := false
	remove := func(list *[]*Request) {
		if i := slices.Index(*list, r); i >= 0 {
			*list, found = slices.Delete(*list, i, i+1), true
		}
	}
	c.mu.Lock()
	remove(&c.posted)
	c.mu.Unlock()
	if r.Peer >= 0 && c.peers[r.Peer] != nil {
		x := c.peers[r.Peer]
		x.mu.Lock()
		remove(&x.queue)
		x.mu.Unlock()
	}
	if found {
		r.Done(0, r.Peer, ErrCanceled)
	}
}

// A frame is a tag, the number of bytes that follow, and these; goodbye stands for one without.
const (
	headerBytes = 24
	goodbye     = 1<<64 - 1
)

// write is the goroutine that sends to a peer.
func (x *peer) write() {
	buf := bufio.NewWriterSize(x.conn, 64<<10)
	for {
		x.mu.Lock()
		for len(x.queue) == 0 && !x.end {
			if buf.Buffered() > 0 {
				x.mu.Unlock()
				buf.Flush()
				x.mu.Lock()
				continue
			}
			x.work.Wait()
		}
		if len(x.queue) == 0 {
			x.mu.Unlock()
			header := make([]byte, headerBytes)
			binary.LittleEndian.PutUint64(header[16:], goodbye)
			buf.Write(header)
			buf.Flush()
			return
		}
		r, cut := x.queue[0], x.cut
		x.queue = x.queue[1:]
		x.mu.Unlock()
		if cut {
			r.Done(0, r.Peer, &GoneError{Peer: x.rank, Err: net.ErrClosed})
			continue
		}
		header := append(r.Tag[:], make([]byte, 8)...)
		binary.LittleEndian.PutUint64(header[16:], uint64(len(r.Head)+len(r.Body)))
		buf.Write(header)
		buf.Write(r.Head)
		if _, err := buf.Write(r.Body); err != nil { // the reader finds out why
			r.Done(0, r.Peer, first(x.c.failed(x.rank), &GoneError{Peer: x.rank, Err: err}))
			continue
		}
		r.Done(len(r.Body), r.Peer, nil)
	}
}

// read is the goroutine that takes what a peer sends, at once.
func (x *peer) read() {
	in := bufio.NewReaderSize(x.conn, 64<<10)
	gone := &GoneError{Peer: x.rank}
	for gone.Err == nil {
		m := &message{from: x.rank}
		var length [8]byte
		_, err := io.ReadFull(in, m.tag[:])
		if err == nil {
			_, err = io.ReadFull(in, length[:])
		}
		n := binary.LittleEndian.Uint64(length[:])
		switch {
		case err == nil && n == goodbye:
			gone.Left, gone.Err = true, errors.New("it has closed its end")
		case err == nil && n > 1<<34:
			gone.Err = fmt.Errorf("it sent %d bytes", n)
		case err == nil:
			m.data = make([]byte, n)
			if _, err = io.ReadFull(in, m.data); err == nil {
				x.c.take(m)
			}
		}
		if err != nil {
			gone.Err = fmt.Errorf("its connection ended without a goodbye: %w", err)
		}
	}
	x.c.lose(gone)
	x.finish() // the peer waits for that
	x.conn.Close()
}

// finish has the writer end when it has sent what is queued.
func (x *peer) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.end = true
	x.work.Signal()
}

// lose fails the receives for which no sender is left.
func (c *Comm) lose(e *GoneError) {
	c.mu.Lock()
	c.gone[e.Peer] = e
	var failed []*Request
	var why []error
	c.posted = slices.DeleteFunc(c.posted, func(r *Request) bool {
		err := c.hopeless(r)
		if err != nil {
			failed, why = append(failed, r), append(why, err)
		}
		return err != nil
	})
	c.mu.Unlock()
	for i, r := range failed {
		r.Done(0, r.Peer, why[i])
	}
}

// Close sends what is queued, says goodbye and waits until the peers have heard it, two seconds at most.
func (c *Comm) Close(ctx context.Context) error {
	c.mu.Lock()
	again := c.closing
	c.closing = true
	c.mu.Unlock()
	if again {
		return ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stop := context.AfterFunc(ctx, c.Kill)
	defer stop()
	for _, x := range c.peers {
		if x != nil {
			x.finish()
		}
	}
	c.sending.Wait()
	c.handlers.Wait()
	c.mu.Lock()
	c.closed = true
	posted := c.posted
	c.posted, c.arrived = nil, nil
	c.mu.Unlock()
	for _, r := range posted {
		r.Done(0, r.Peer, ErrClosed)
	}
	return nil
}

// Kill cuts all connections. Nothing is sent on one when another is cut already.
func (c *Comm) Kill() {
	for _, x := range c.peers {
		if x != nil {
			x.mu.Lock()
			x.cut = true
			x.mu.Unlock()
		}
	}
	for _, x := range c.peers {
		if x != nil {
			x.conn.Close()
		}
	}
}
