package tcp

import (
	"errors"
	"fmt"
	"io"
)

// A reader reads ahead into its buffer while it waits for bytes that go elsewhere.
// Where small messages come it's large, so that many are had at once; where chunks
// come it only holds the next header, so that their bytes are never copied twice.
const (
	messageAhead = 32 << 10
	chunkAhead   = headerBytes
)

// A reader parses the bytes of one connection. It's a state machine that stops wherever the bytes
// stop; the next goroutine that reads the pipe goes on from there.
type reader struct {
	pp    *pipe
	buf   []byte // all of it
	have  []byte // of it, what isn't used yet
	in    transfer
	want  []byte    // what is being filled: a header, part of a message, a control payload
	doing doing     // what it is, and what follows
	msg   *incoming // whose bytes they are,
	n     int       // and how many of them this frame has
	waste int       // of them, those still to be thrown away
	skip  []byte    // where those go
	head  [headerBytes]byte
	h     header
}

type doing int

const (
	onHeader doing = iota
	onFrame        // whose header is complete
	onMessage
	onControl
)

var (
	errGoodbye = errors.New("goodbye")
	errBlocked = errors.New("what this belongs to comes over another connection")
)

func newReader(pp *pipe) *reader {
	ahead := messageAhead
	if pp.index > 0 {
		ahead = chunkAhead
	}
	r := &reader{pp: pp, buf: make([]byte, ahead)}
	r.want = r.head[:]
	return r
}

// step reads until the socket is empty (nil), about budget bytes are read (nil), another pipe has to
// be read first (errBlocked), or the connection is at its end.
func (r *reader) step(budget int) (moved bool, err error) {
	for empty := false; ; {
		for len(r.want) > 0 {
			if len(r.have) == 0 && (empty || budget <= 0) {
				return moved, nil
			}
			n, short, err := r.fill()
			if err == errWouldBlock {
				return moved, nil
			}
			if err != nil {
				return moved, err
			}
			empty = empty || short
			moved = true
			budget -= n
		}
		if err := r.filled(); err != nil {
			return moved, err
		}
	}
}

// fill puts bytes into want, those read ahead first. It's short if the socket had fewer than it asked for.
func (r *reader) fill() (n int, short bool, err error) {
	if len(r.have) > 0 {
		k := copy(r.want, r.have)
		r.want, r.have = r.want[k:], r.have[k:]
		return 0, false, nil
	}
	r.in = transfer{r.want, r.buf}
	n, err = r.in.vectored(readv, r.pp.fd)
	r.in = transfer{}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return 0, false, err
	}
	r.pp.p.heard.Store(r.pp.p.f.ticks.Load())
	k := min(n, len(r.want))
	short = n < len(r.want)+len(r.buf)
	r.want, r.have = r.want[k:], r.buf[:n-k]
	return n, short, nil
}

// filled goes on after want has been filled.
func (r *reader) filled() error {
	switch r.doing {
	case onHeader:
		if err := r.h.parse(&r.head); err != nil {
			return err
		}
		r.doing = onFrame
		return r.frame()
	case onFrame:
		return r.frame()
	case onMessage:
		if r.waste > 0 {
			r.discard()
			return nil
		}
		r.nextFrame()
		in, n := r.msg, r.n
		r.msg = nil
		if in != nil {
			r.pp.p.received(r.pp, in, n, nil)
		}
	case onControl:
		payload := r.skip
		r.skip = nil
		r.nextFrame()
		r.pp.p.f.Match.Control(r.pp.p.rank, payload)
	}
	return nil
}

func (r *reader) nextFrame() { r.want, r.doing = r.head[:], onHeader }

// discard has the next part of a payload read that no receive wants.
func (r *reader) discard() {
	if r.skip == nil {
		r.skip = make([]byte, 64<<10)
	}
	r.want = r.skip[:min(r.waste, len(r.skip))]
	r.waste -= len(r.want)
}

// expect has n bytes of a message read to where begin said that they go; nil means nowhere.
func (r *reader) expect(in *incoming, dst []byte, n int) {
	r.doing, r.msg, r.n = onMessage, in, n
	if r.want = dst; dst == nil {
		r.waste = n
	}
}

// abort ends what was half read.
func (r *reader) abort(err error) {
	if r.msg != nil {
		in := r.msg
		r.msg = nil
		r.pp.p.received(r.pp, in, r.n, err)
	}
}

// waits reports whether the frame must wait for another pipe: a chunk for the announcement of its message, a
// goodbye for the end of the link, which is announced there, too. The caller holds the lock.
func (r *reader) waits() bool {
	p := r.pp.p
	if p.err != nil || r.pp.state != up {
		return false
	}
	return r.h.kind == kindChunk && r.h.id >= p.nextIn || r.h.kind == kindGoodbye && r.pp.index > 0
}

// frame acts on the frame whose header was read.
func (r *reader) frame() error {
	p, h := r.pp.p, &r.h
	if (h.kind == kindChunk) != (r.pp.index > 0) && h.kind != kindGoodbye {
		return fmt.Errorf("frame of kind %d on connection %d", h.kind, r.pp.index)
	}
	if h.kind == kindChunk {
		return r.chunk()
	}
	if h.kind == kindGoodbye {
		return r.goodbye()
	}
	r.nextFrame()
	switch h.kind {
	case kindEager:
		return r.eager()
	case kindPush, kindAsk:
		in, err := p.announced(h)
		if err == nil {
			p.f.Match.Arrive(&in.Arrival)
		}
		return err
	case kindControl:
		r.skip = make([]byte, h.payload) // the handler's, in the end
		r.want, r.doing = r.skip, onControl
	case kindGrant:
		p.granted(h.id)
	case kindDrop:
		p.unwanted(h.id)
	case kindRetract:
		p.retracted(h.id)
	case kindCredit:
		return p.credited(h.length)
	}
	return nil
}

// goodbye ends the connection.
func (r *reader) goodbye() error {
	p := r.pp.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.waits() {
		return errBlocked
	}
	return errGoodbye
}

// eager receives a message that follows its announcement.
func (r *reader) eager() error {
	p, n := r.pp.p, int(r.h.length)
	in, err := p.announced(&r.h)
	if err != nil {
		return err
	}
	p.f.Match.Arrive(&in.Arrival)
	if n == 0 {
		return nil // it may be done, and used again
	}
	p.mu.Lock()
	dst, err := p.begin(r.pp, in, 0, n)
	p.mu.Unlock()
	if err == nil {
		r.expect(in, dst, n)
	}
	return err
}

// chunk receives some bytes of a message.
func (r *reader) chunk() error {
	p, h := r.pp.p, &r.h
	n := int(h.payload)
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.waits() {
		return errBlocked
	}
	in := p.in[h.id]
	if in == nil {
		r.expect(nil, nil, n) // canceled on the way
		return nil
	}
	if h.length != uint64(in.Len) {
		return fmt.Errorf("chunk of a message of %d bytes, announced with %d", h.length, in.Len)
	}
	dst, err := p.begin(r.pp, in, int(h.offset), n)
	if err == nil {
		r.expect(in, dst, n)
	}
	return err
}
