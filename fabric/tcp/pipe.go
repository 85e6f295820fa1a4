package tcp

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// frame is a header on its way out, with a payload or without.
type frame struct {
	head    [headerBytes]byte
	payload []byte
	m       *fabric.Msg // is done when the frame is written
	last    bool        // nothing follows
}

type state int

const (
	idle      state = iota
	dialing         // this rank connects
	accepting       // the peer has connected; the answer is on its way
	up
	closed
)

// A pipe is one connection to a peer, and the frames and chunks to be written to it. The goroutine
// that sets reading (or writing) is the only one to read (write) until there's nothing left to do,
// or the socket would block. Goroutines that wait for a message, and the poller, take turns at it.
type pipe struct {
	p      *peer
	index  int
	poller *poller // once it's up
	listed bool    // the poller has it on its list; guarded by the poller's lock

	// Guarded by the peer's lock.
	state   state
	fd      int // -1: none
	reading bool
	writing bool
	ended   bool // nothing is read any more
	blocked bool // what was read waits for another pipe
	known   bool // to the poller's set
	urgent  transport.Queue[*frame]
	queue   transport.Queue[*frame]
	cur     *frame    // being written: a frame,
	chunk   *outgoing // or some bytes of this message
	into    *incoming // being read

	quit chan struct{} // closed with the pipe

	in *reader // for the goroutine that has set reading; nil until it's up

	// For the goroutine that has set writing.
	out       transfer
	bytes     int // of the chunk
	chunkHead [headerBytes]byte
}

func newPipe(p *peer, index int) *pipe {
	return &pipe{p: p, index: index, fd: -1, quit: make(chan struct{})}
}

// transfer is up to two pieces of memory that are being written, or read into.
type transfer struct{ a, b []byte }

var errWouldBlock = errors.New("would block")

// writev writes as much as the socket takes, and about budget bytes at most.
func (t *transfer) writev(fd, budget int) (n int, err error) {
	for len(t.a)+len(t.b) > 0 {
		if n >= budget {
			return n, errWouldBlock
		}
		k, err := t.vectored(writev, fd)
		if err != nil {
			return n, err
		}
		t.advance(k)
		n += k
	}
	return n, nil
}

func (t *transfer) advance(n int) {
	k := min(n, len(t.a))
	t.a, t.b = t.a[k:], t.b[n-k:]
}

// How many bytes are read, or written, before something else has its turn.
const (
	portion = 4 << 20  // by a goroutine that waits, or posts
	backlog = 1 << 20  // by a poller
	small   = 64 << 10 // of chunks, by a goroutine that waits and had nothing to read just now
)

// sendsChunks reports whether this rank writes chunks to the pipe. Within a host, where a sender delivers its
// bytes into the receiver's socket itself, the two directions don't share a socket: the lock of each would be
// held by the other rank whenever it's needed.
func (pp *pipe) sendsChunks() bool {
	p := pp.p
	if pp.index == 0 {
		return false
	}
	if len(p.pipes) < 3 || !p.near {
		return true
	}
	return pp.index%2 == 1 == (p.f.rank < p.rank)
}

// pending reports whether there's something to write. The caller holds the lock.
func (pp *pipe) pending() bool {
	return pp.cur != nil || pp.chunk != nil || !pp.urgent.Empty() || !pp.queue.Empty() ||
		pp.sendsChunks() && !pp.p.bulk.Empty()
}

// write writes what waits on the pipe, unless another goroutine does, as far as the socket takes it and
// about budget bytes at most. It never blocks, and reports whether anything was written.
func (pp *pipe) write(budget int) (moved bool) {
	p := pp.p
	p.mu.Lock()
	if pp.writing || pp.fd < 0 || !pp.pending() {
		p.mu.Unlock()
		return false
	}
	pp.writing = true
	var err error
	for err == nil && (pp.cur != nil || pp.chunk != nil || pp.take()) {
		fd, gone := pp.fd, pp.state == closed
		p.mu.Unlock()
		n := 0
		if gone {
			err = net.ErrClosed
		} else {
			n, err = pp.out.writev(fd, budget)
		}
		budget -= n
		moved = moved || n > 0
		if err != errWouldBlock {
			if err != nil && !gone {
				p.readPending()
			}
			pp.written(err)
		}
		p.mu.Lock()
		if err == errWouldBlock && pp.state == closed {
			err = nil // once more, to fail what is half written
		}
	}
	pp.writing = false
	broke := err != nil && err != errWouldBlock && pp.state == up // else the goroutine that closed it knows why
	if err == errWouldBlock {
		pp.poller.requeue(pp)
	}
	pp.free()
	p.mu.Unlock()
	if broke {
		p.fail(lost(pp.index, err))
	}
	return moved
}

// read reads what has come, unless another goroutine does, about budget bytes at most. It never
// blocks, and reports whether anything came.
func (pp *pipe) read(budget int) (moved bool) {
	p := pp.p
	p.mu.Lock()
	if pp.reading || pp.ended || pp.fd < 0 {
		p.mu.Unlock()
		return false
	}
	pp.reading = true
	stuck := pp.blocked
	pp.blocked = false
	gone := pp.state == closed
	p.mu.Unlock()
	err := net.ErrClosed
	if !gone {
		moved, err = pp.in.step(budget)
	}
	p.mu.Lock()
	for err == errBlocked && !pp.in.waits() {
		p.mu.Unlock()
		_, err = pp.in.step(budget)
		p.mu.Lock()
	}
	if pp.blocked = err == errBlocked; pp.blocked {
		err = nil
	}
	if err == nil && pp.state == closed {
		err = net.ErrClosed
	}
	pp.reading, pp.ended = false, err != nil
	if stuck && !pp.blocked {
		pp.poller.requeue(pp) // it wasn't armed
	}
	others := moved && pp.index == 0 && p.anyBlocked()
	pp.free()
	p.mu.Unlock()
	if err != nil {
		pp.stop(err)
	} else if others {
		p.unblock()
	}
	return moved
}

// stop ends reading, for good: the peer said goodbye, or the connection broke.
func (pp *pipe) stop(err error) {
	p := pp.p
	pp.in.abort(err)
	p.mu.Lock()
	expected := err == errGoodbye || pp.state != up || p.err != nil
	p.mu.Unlock()
	if err == errGoodbye && pp.index == 0 {
		p.left()
	}
	if !expected {
		p.readPending()
		if err == io.EOF {
			err = errors.New("closed without a goodbye; its process may have died")
		}
		p.fail(lost(pp.index, err))
	}
	pp.finish()
}

// take chooses what is written next. Pipe 0 serves frames; the others chunks, and
// a last frame when there are no more.
func (pp *pipe) take() bool {
	if pp.state != up {
		return false
	}
	switch {
	case !pp.urgent.Empty():
		pp.cur = pp.urgent.Pop()
	case pp.sendsChunks() && !pp.p.bulk.Empty():
		pp.takeChunk()
		return true
	case !pp.queue.Empty():
		pp.cur = pp.queue.Pop()
	default:
		return false
	}
	pp.out = transfer{a: pp.cur.head[:], b: pp.cur.payload}
	return true
}

func (pp *pipe) takeChunk() {
	q := &pp.p.bulk
	o := q.First()
	n := min(chunkBytes, o.m.Len-o.next)
	h := header{kind: kindChunk, payload: uint32(n), id: o.id, length: uint64(o.m.Len), offset: uint64(o.next)}
	h.put(&pp.chunkHead)
	pp.chunk, pp.bytes = o, n
	pp.out = transfer{a: pp.chunkHead[:]}
	if n > 0 {
		pp.out.b = at(o.m, o.next, n)
	}
	o.busy++
	if o.next += n; o.next == o.m.Len {
		o.queued = false
		q.Pop()
	}
}

// written ends what take chose.
func (pp *pipe) written(err error) {
	p := pp.p
	pp.out = transfer{}
	p.mu.Lock()
	if fr := pp.cur; fr != nil {
		pp.cur = nil
		m, last, control := fr.m, fr.last, fr.head[2] == byte(kindPing)
		if control {
			p.pinged = false
		}
		p.reuse(fr)
		perr := p.err
		p.mu.Unlock()
		if last && err == nil {
			unix.Shutdown(pp.fd, unix.SHUT_WR)
		}
		if m != nil {
			if err == nil {
				m.Complete(m.Len, m.Peer, nil)
			} else {
				m.Complete(0, m.Peer, p.reason(perr, pp.index, err))
			}
		}
		return
	}
	o := pp.chunk
	pp.chunk = nil
	o.busy--
	if err == nil {
		o.left -= pp.bytes
	}
	m, merr, done := p.after(o, pp.index, err)
	p.mu.Unlock()
	if done {
		n := m.Len
		if merr != nil {
			n = 0
		}
		m.Complete(n, m.Peer, merr)
	}
}

// close ends the connection. The caller holds the lock, and calls drain afterwards.
func (pp *pipe) close() {
	if pp.state == closed {
		return
	}
	pp.state = closed
	close(pp.quit)
	if pp.fd >= 0 {
		unix.Shutdown(pp.fd, unix.SHUT_RDWR)
	}
}

// drain fails messages that were half read or half written when the pipe was closed, unless another
// goroutine is at them and will.
func (pp *pipe) drain() {
	pp.write(backlog)
	pp.read(backlog)
	pp.p.mu.Lock()
	pp.free()
	pp.p.mu.Unlock()
}

// free gives the descriptor back when the pipe is closed and no goroutine uses it. The caller holds the
// lock.
func (pp *pipe) free() {
	if pp.state == closed && pp.fd >= 0 && !pp.reading && !pp.writing && pp.ended && pp.cur == nil && pp.chunk == nil {
		pp.poller.set.forget(pp.fd)
		unix.Close(pp.fd)
		pp.fd = -1
		pp.p.f.links.Done()
	}
}

// finish closes the pipe. If the link has ended and no other pipe can bring anything, it fails the
// messages that were on their way. A pipe that is only about to come up can: a peer may send its
// last bytes and say goodbye before this end has noticed that the two agree on the connection.
func (pp *pipe) finish() {
	p := pp.p
	p.mu.Lock()
	pp.close()
	last := p.err != nil
	for _, other := range p.pipes {
		last = last && (other.state == idle || other.state == closed)
	}
	p.mu.Unlock()
	pp.drain()
	if last {
		p.end(fabric.ErrLeft)
	}
}
