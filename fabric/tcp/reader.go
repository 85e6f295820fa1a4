package tcp

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// A reader reads ahead into its buffer while it waits for bytes that go elsewhere.
// Where small messages come it's large, so that many are had at once; where chunks
// come it only holds the next header, so that their bytes are never copied twice.
const (
	messageAhead = 32 << 10
	chunkAhead   = headerBytes
)

// reader reads one connection. It's used by the pipe's reading goroutine.
type reader struct {
	pp   *pipe
	buf  []byte // all of it
	have []byte // of it, what isn't used yet
	in   transfer
	n    int
	read func(fd uintptr) bool
	skip []byte // where unwanted bytes go
	head [headerBytes]byte
	h    header
}

func newReader(pp *pipe) *reader {
	ahead := messageAhead
	if pp.index > 0 {
		ahead = chunkAhead
	}
	r := &reader{pp: pp, buf: make([]byte, ahead)}
	r.read = func(fd uintptr) bool {
		for look := 0; ; look++ {
			r.n, r.in.err = r.in.vectored(unix.SYS_READV, fd)
			if r.in.err != errWouldBlock {
				return true
			}
			if !pp.p.f.watch(look) {
				return false
			}
		}
	}
	return r
}

// full fills dst.
func (r *reader) full(dst []byte) error {
	k := copy(dst, r.have)
	dst, r.have = dst[k:], r.have[k:]
	for len(dst) > 0 {
		r.in.a, r.in.b = dst, r.buf
		err := r.pp.raw.Read(r.read)
		r.in.a, r.in.b = nil, nil
		if err == nil {
			err = r.in.err
		}
		if err == nil && r.n == 0 {
			err = io.EOF
		}
		if err != nil {
			return err
		}
		r.pp.p.heard.Store(r.pp.p.f.ticks.Load())
		k := min(r.n, len(dst))
		dst, r.have = dst[k:], r.buf[:r.n-k]
	}
	return nil
}

// drop reads n bytes that nobody wants.
func (r *reader) drop(n int) error {
	if r.skip == nil {
		r.skip = make([]byte, 64<<10)
	}
	for n > 0 {
		k := min(n, len(r.skip))
		if err := r.full(r.skip[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

var errGoodbye = errors.New("goodbye")

// run is the pipe's reading goroutine.
func (r *reader) run() {
	p := r.pp.p
	var err error
	for err == nil {
		if err = r.full(r.head[:]); err == nil {
			if err = r.h.parse(&r.head); err == nil {
				err = r.frame()
			}
		}
	}
	p.mu.Lock()
	if err == errGoodbye && r.pp.index > 0 {
		// What the messages of this connection belong to is announced on the first.
		for p.err == nil {
			p.changed.Wait()
		}
	}
	expected := err == errGoodbye || r.pp.state != up || p.err != nil
	p.mu.Unlock()
	if err == errGoodbye && r.pp.index == 0 {
		p.left()
	}
	if !expected {
		if err == io.EOF {
			err = errors.New("closed without a goodbye; its process may have died")
		}
		p.fail(lost(r.pp.index, err))
	}
	r.pp.over()
}

// frame acts on the frame whose header was read.
func (r *reader) frame() error {
	p, h := r.pp.p, &r.h
	if (h.kind == kindChunk) != (r.pp.index > 0) && h.kind != kindGoodbye {
		return fmt.Errorf("frame of kind %d on connection %d", h.kind, r.pp.index)
	}
	switch h.kind {
	case kindEager:
		return r.eager()
	case kindPush, kindAsk:
		in, err := p.announced(h)
		if err == nil {
			p.f.match.Arrive(&in.Arrival)
		}
		return err
	case kindChunk:
		return r.chunk()
	case kindControl:
		payload := make([]byte, h.payload)
		if err := r.full(payload); err != nil {
			return err
		}
		p.f.match.Control(p.rank, payload)
	case kindGrant:
		p.granted(h.id)
		p.pipes[0].work(inline)
	case kindDrop:
		p.unwanted(h.id)
	case kindRetract:
		p.retracted(h.id)
	case kindCredit:
		return p.credited(h.length)
	case kindPing:
	case kindGoodbye:
		return errGoodbye
	}
	return nil
}

// eager receives a message that follows its announcement.
func (r *reader) eager() error {
	p, n := r.pp.p, int(r.h.length)
	in, err := p.announced(&r.h)
	if err != nil {
		return err
	}
	p.f.match.Arrive(&in.Arrival)
	if n == 0 {
		return nil // it may be done, and used again
	}
	p.mu.Lock()
	dst, err := p.begin(r.pp, in, 0, n)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return r.bytes(in, dst, n)
}

// chunk receives some bytes of a message.
func (r *reader) chunk() error {
	p, h := r.pp.p, &r.h
	p.mu.Lock()
	for h.id >= p.nextIn && p.err == nil && r.pp.state == up {
		p.changed.Wait() // for the announcement, on the first connection
	}
	in := p.in[h.id]
	if in == nil {
		p.mu.Unlock()
		return r.drop(int(h.payload)) // canceled on the way
	}
	var dst []byte
	var err error
	if h.length == uint64(in.Len) {
		dst, err = p.begin(r.pp, in, int(h.offset), int(h.payload))
	} else {
		err = fmt.Errorf("chunk of a message of %d bytes, announced with %d", h.length, in.Len)
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return r.bytes(in, dst, int(h.payload))
}

// bytes reads n bytes of a message to where begin said that they go.
func (r *reader) bytes(in *incoming, dst []byte, n int) (err error) {
	if dst == nil {
		err = r.drop(n)
	} else {
		err = r.full(dst)
	}
	r.pp.p.received(r.pp, in, n, err)
	return err
}
