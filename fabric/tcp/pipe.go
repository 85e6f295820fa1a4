package tcp

import (
	"errors"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
)

// frame is a header on its way out, with a payload or without.
type frame struct {
	head    [headerBytes]byte
	payload []byte
	m       *fabric.Msg // is done when the frame is written
	last    bool        // nothing follows
	next    *frame
}

type frameQueue struct{ head, tail *frame }

func (q *frameQueue) push(fr *frame) {
	fr.next = nil
	if q.tail == nil {
		q.head = fr
	} else {
		q.tail.next = fr
	}
	q.tail = fr
}

func (q *frameQueue) pop() *frame {
	fr := q.head
	q.head = fr.next
	if q.head == nil {
		q.tail = nil
	}
	fr.next = nil
	return fr
}

// remove takes the frame that carries m out of the queue, if it's there.
func (q *frameQueue) remove(m *fabric.Msg) *frame {
	var found *frame
	rest := frameQueue{}
	for q.head != nil {
		if fr := q.pop(); fr.m == m {
			found = fr
		} else {
			rest.push(fr)
		}
	}
	*q = rest
	return found
}

type state int

const (
	idle      state = iota
	dialing         // this rank connects
	accepting       // the peer has connected; the answer is on its way
	up
	closed
)

// pipe is one connection to a peer, and what is to be written to it. Who sets
// writing owns the right to write, until there's nothing left or it hands the
// right over to the pipe's own goroutine.
type pipe struct {
	p     *peer
	index int

	// Guarded by the peer's lock.
	state   state
	writing bool
	urgent  frameQueue
	queue   frameQueue
	cur     *frame    // being written: a frame,
	chunk   *outgoing // or some bytes of this message
	into    *incoming // being read

	wake chan struct{} // hands the right to write to the pipe's goroutine
	quit chan struct{} // closed with the pipe

	nc  *net.TCPConn
	raw syscall.RawConn

	// For whoever owns the right to write.
	out       transfer
	bytes     int // of the chunk
	chunkHead [headerBytes]byte
	tryWrite  func(fd uintptr) bool
	allWrite  func(fd uintptr) bool
}

func newPipe(p *peer, index int) *pipe {
	pp := &pipe{p: p, index: index, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	pp.tryWrite = func(fd uintptr) bool {
		pp.out.writev(fd)
		return true
	}
	pp.allWrite = func(fd uintptr) bool {
		for look := 0; ; look++ {
			pp.out.writev(fd)
			if pp.out.err != errWouldBlock {
				return true
			}
			if !p.f.watch(look) {
				return false
			}
		}
	}
	return pp
}

// transfer is up to two pieces of memory that are being written, or read into.
type transfer struct {
	a, b []byte
	err  error
}

var errWouldBlock = errors.New("would block")

// writev writes as much as the socket takes.
func (t *transfer) writev(fd uintptr) {
	t.err = nil
	for len(t.a)+len(t.b) > 0 {
		n, err := t.vectored(unix.SYS_WRITEV, fd)
		if err != nil {
			t.err = err
			return
		}
		t.advance(n)
	}
}

func (t *transfer) advance(n int) {
	k := min(n, len(t.a))
	t.a, t.b = t.a[k:], t.b[n-k:]
}

// vectored calls readv or writev once.
func (t *transfer) vectored(call, fd uintptr) (int, error) {
	var iov [2]unix.Iovec
	n := 0
	for _, piece := range [2][]byte{t.a, t.b} {
		if len(piece) > 0 {
			iov[n].Base = unsafe.SliceData(piece)
			iov[n].SetLen(len(piece))
			n++
		}
	}
	for {
		done, _, errno := unix.Syscall(call, fd, uintptr(unsafe.Pointer(&iov)), uintptr(n))
		switch errno {
		case 0:
			return int(done), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errWouldBlock
		default:
			return 0, errno
		}
	}
}

// manner says how work writes.
type manner bool

const (
	inline   manner = false // on the caller's goroutine, never blocking
	blocking manner = true
)

// inlineBytes bounds what is written on a goroutine that has other things to do.
const inlineBytes = 128 << 10

// work writes what waits on the pipe, unless somebody else does.
func (pp *pipe) work(how manner) {
	pp.p.mu.Lock()
	if pp.state != up || pp.writing {
		pp.p.mu.Unlock()
		return
	}
	pp.writing = true
	pp.p.mu.Unlock()
	pp.flush(how)
}

// rouse has the pipe's goroutine write what waits. The caller holds the lock.
func (pp *pipe) rouse() {
	if pp.state == up && !pp.writing {
		pp.writing = true
		pp.handOver()
	}
}

// handOver gives the right to write to the pipe's goroutine, which is there as
// long as the pipe is up. It never blocks, as there's only one right. The caller
// holds the lock.
func (pp *pipe) handOver() { pp.wake <- struct{}{} }

// passOn is handOver for a writer in the middle of something.
func (pp *pipe) passOn() bool {
	pp.p.mu.Lock()
	defer pp.p.mu.Unlock()
	if pp.state != up {
		return false
	}
	pp.handOver()
	return true
}

// write is the pipe's own goroutine.
func (pp *pipe) write() {
	for {
		select {
		case <-pp.wake:
			pp.flush(blocking)
		case <-pp.quit:
			select {
			case <-pp.wake:
				pp.flush(blocking) // fails what is half written
			default:
			}
			return
		}
	}
}

// flush writes until nothing is left. The caller owns the right to write.
func (pp *pipe) flush(how manner) {
	p := pp.p
	for {
		p.mu.Lock()
		if pp.cur == nil && pp.chunk == nil && !pp.take() {
			pp.writing = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		err := errWouldBlock
		if how == blocking {
			err = pp.raw.Write(pp.allWrite)
		} else if len(pp.out.b) <= inlineBytes {
			err = pp.raw.Write(pp.tryWrite)
		}
		if err == nil {
			err = pp.out.err
		}
		if err == errWouldBlock {
			if pp.passOn() {
				return
			}
			err = net.ErrClosed
		}
		pp.written(err)
		if err != nil {
			p.mu.Lock()
			pp.writing = false
			broke := pp.state == up // else whoever closed it knows why
			p.mu.Unlock()
			if broke {
				p.fail(lost(pp.index, err))
			}
			return
		}
	}
}

// take chooses what is written next. Pipe 0 serves frames; the others chunks, and
// a last frame when there are no more.
func (pp *pipe) take() bool {
	if pp.state != up {
		return false
	}
	switch {
	case pp.urgent.head != nil:
		pp.cur = pp.urgent.pop()
	case pp.index > 0 && pp.p.bulk.head != nil:
		pp.takeChunk()
		return true
	case pp.queue.head != nil:
		pp.cur = pp.queue.pop()
	default:
		return false
	}
	pp.out = transfer{a: pp.cur.head[:], b: pp.cur.payload}
	return true
}

func (pp *pipe) takeChunk() {
	q := &pp.p.bulk
	o := q.head
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
		q.pop()
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
			pp.nc.CloseWrite()
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

// close ends the connection. The caller holds the lock.
func (pp *pipe) close() {
	if pp.state == closed {
		return
	}
	pp.state = closed
	close(pp.quit)
	if pp.nc != nil {
		pp.nc.Close()
	}
}

// over closes the pipe. If the link has ended and no other pipe can bring
// anything, what was on its way doesn't come any more. A pipe that is only about to come up
// can: a peer may send its last bytes and say goodbye before this side has noticed that they agree on the connection.
func (pp *pipe) over() {
	p := pp.p
	p.mu.Lock()
	pp.close()
	p.changed.Broadcast()
	last := p.err != nil
	for _, other := range p.pipes {
		last = last && (other.state == idle || other.state == closed)
	}
	p.mu.Unlock()
	if last {
		p.end(fabric.ErrLeft, quietly)
	}
}
