package gloo

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/secure"
)

const (
	// small is what the goroutine of a call writes by itself; more is its pair's writer's. It takes no longer than
	// patience.
	small    = 32 << 10
	patience = 2 * time.Millisecond
	// maxStates bounds the slots under which a peer may have something under way.
	maxStates = 1 << 16
)

// pair is the connection with another rank. Its fields belong to the lock of its mesh.
type pair struct {
	m      *mesh
	peer   int
	conn   net.Conn // nil until it's there
	sealed bool     // by TLS
	states map[uint64]*slotState
	lost   error     // why it's no more
	since  time.Time // when it was lost

	out     []frame // to be written
	head    []byte  // before all of out: what was begun and not ended
	writing bool    // one goroutine does
	sending []frame // what it writes
	bufs    net.Buffers
	spare   []byte
	wake    chan struct{}

	reading   *fabric.Msg // whose buffer is being filled
	withdrawn bool        // it is to end; the reader finds that its time is over
}

// frame is a preamble, and the message whose payload follows.
type frame struct {
	preamble
	msg *fabric.Msg
}

// push queues a frame. The caller holds the mesh's lock, and calls flush after releasing it.
func (p *pair) push(f preamble, m *fabric.Msg) {
	p.out = append(p.out, frame{f, m})
}

// attach begins the pair's life on a connection.
func (p *pair) attach(conn net.Conn) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.lost != nil || p.conn != nil {
		conn.Close()
		return
	}
	p.conn = conn
	under := conn
	if over, ok := conn.(*tls.Conn); ok {
		p.sealed, under = true, over.NetConn()
	}
	if tcp, ok := under.(*net.TCPConn); ok && secure.SameHost(conn) {
		sys.DisablePacing(tcp)
	}
	p.m.running.Add(2)
	go p.write()
	go p.read(conn)
	p.signal()
	p.m.joined <- p
}

// signal wakes the writer.
func (p *pair) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// flush writes the frames that were pushed, unless they're many, or another goroutine does.
func (p *pair) flush() {
	p.m.mu.Lock()
	n := len(p.head)
	for _, f := range p.out {
		if n += preambleBytes; f.op == data {
			n += f.msg.Len
		}
	}
	switch {
	case n == 0 || p.conn == nil:
	case p.writing || n > small || p.sealed:
		p.signal()
	default:
		p.conn.SetWriteDeadline(time.Now().Add(patience))
		p.batch()
		if len(p.head)+len(p.out) > 0 {
			p.signal()
		}
	}
	p.m.mu.Unlock()
}

// write is the writer.
func (p *pair) write() {
	defer p.m.running.Done()
	for range p.wake {
		p.m.mu.Lock()
		for !p.writing && p.lost == nil && len(p.head)+len(p.out) > 0 {
			p.conn.SetWriteDeadline(time.Time{})
			p.batch()
		}
		gone := p.lost != nil
		p.m.mu.Unlock()
		if gone {
			return
		}
	}
}

// batch writes the queued frames. The lock is held at its beginning and its end. Payloads that the connection doesn't
// take in time are copied, so that the messages are done.
func (p *pair) batch() {
	p.writing = true
	batch := p.out
	p.out, p.sending = p.sending[:0], batch
	p.bufs = append(p.bufs[:0], append(p.spare[:0], p.head...))
	p.head = p.head[:0]
	for i := range batch {
		f := &batch[i]
		last := len(p.bufs) - 1
		p.bufs[last] = f.append(p.bufs[last])
		switch {
		case f.op != data:
		case f.msg.Len <= small || p.sealed:
			p.bufs[last] = append(p.bufs[last], f.msg.Bytes()...)
		default:
			p.bufs = append(p.bufs, f.msg.Bytes(), nil)
		}
	}
	if p.spare = p.bufs[0]; p.sealed { // which can't be cut short: a copy is written
		if len(p.spare) > 2*small {
			p.spare = nil
		}
		for i := range batch {
			if m := batch[i].msg; m != nil {
				m.Complete(m.Len, p.peer, nil)
				batch[i].msg = nil
			}
		}
	}
	conn, left := p.conn, p.bufs
	p.m.mu.Unlock()
	_, err := left.WriteTo(conn)
	p.m.mu.Lock()
	p.writing = false
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
		for _, b := range left {
			p.head = append(p.head, b...)
		}
	}
	if err != nil {
		p.fail(err)
		err = &fabric.PeerError{Peer: p.peer, Err: p.lost}
	}
	for i := range batch {
		if m := batch[i].msg; m != nil {
			m.Complete(m.Len, p.peer, err)
			batch[i].msg = nil
		}
	}
	if p.sending = batch[:0]; p.lost != nil {
		p.signal()
	}
}

// read is the reader.
func (p *pair) read(conn net.Conn) {
	defer p.m.running.Done()
	err := p.frames(conn)
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if m := p.reading; m != nil {
		p.reading = nil
		m.Complete(0, p.peer, &fabric.PeerError{Peer: p.peer, Err: err})
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errClosed
	}
	p.fail(err)
	p.signal() // the writer ends, too
}

// errClosed is why a pair is lost whose other end was closed: what a process does when it ends, and when it destroys
// its group.
var errClosed = errors.New("it has closed the connection")

// frames reads and carries out frames, until the connection ends.
func (p *pair) frames(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 4<<10)
	var head [preambleBytes]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		f, err := parsePreamble(&head)
		if err != nil {
			return err
		}
		p.m.mu.Lock()
		if len(p.states) > maxStates {
			err = fmt.Errorf("more than %d slots at once", maxStates)
		} else if p.m.arrived(p, f.slot); f.op != data {
			p.notice(f)
		}
		p.m.mu.Unlock()
		if err == nil && f.op == data {
			err = p.payload(conn, in, f)
		}
		if err != nil {
			return err
		}
		p.flush()
	}
}

// payload reads what follows a preamble, into the receive that it's for.
func (p *pair) payload(conn net.Conn, in *bufio.Reader, f preamble) error {
	n := int(f.length)
	p.m.mu.Lock()
	m, asked := p.answer(f.slot)
	switch {
	case m != nil && n > m.Len:
		p.deliver(m, n)
	case m != nil:
		p.reading = m
	}
	p.m.mu.Unlock()
	switch {
	case !asked:
		return errors.New("a payload that no operation has asked for")
	case m == nil:
		return p.early(in, f)
	case n > m.Len:
		_, err := io.CopyN(io.Discard, in, int64(n))
		return err
	}
	got, err := io.ReadFull(in, m.Bytes()[:n])
	p.m.mu.Lock()
	withdrawn := p.withdrawn
	if withdrawn {
		p.withdrawn = false
		conn.SetReadDeadline(time.Time{})
	}
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case late:
		p.reading = nil
		m.Complete(0, p.peer, fabric.ErrCanceled)
	case err == nil:
		p.reading = nil
		p.deliver(m, n)
	}
	p.m.mu.Unlock()
	if late {
		_, err = io.CopyN(io.Discard, in, int64(n-got))
	}
	return err
}

// early reads a payload whose receive was withdrawn: the next one gets it.
func (p *pair) early(in *bufio.Reader, f preamble) error {
	payload, err := wire.ReadN(in, int(f.length))
	if err != nil {
		return err
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if m := p.m.popAnySource(f.slot); m != nil {
		p.deliverEarly(m, payload)
		return nil
	}
	l := p.state(f.slot)
	if l.early = append(l.early, payload); len(l.recvs) > 0 { // posted meanwhile; it has asked for another one
		p.deliverEarly(pop(&l.recvs), pop(&l.early))
	}
	return nil
}

// fail ends the pair, and what waits for it. The lock is held.
func (p *pair) fail(err error) {
	if p.lost != nil {
		return
	}
	p.lost, p.since = err, time.Now()
	if p.conn != nil {
		p.conn.Close()
	}
	why := &fabric.PeerError{Peer: p.peer, Err: err}
	end := func(m *fabric.Msg) {
		if m != nil {
			m.Complete(0, p.peer, why)
		}
	}
	needed := false
	for slot, l := range p.states {
		needed = needed || slot == p.m.now && len(l.recvs)+len(l.sends) > 0
		for _, m := range l.recvs {
			end(m)
		}
		for _, m := range l.sends {
			end(m)
		}
		l.recvs, l.sends = nil, nil
	}
	for _, f := range p.out {
		end(f.msg)
	}
	p.out, p.head = nil, nil
	if needed {
		p.m.failCollective(p.peer, why)
	}
	p.m.endAnySource()
	p.signal()
}
