package tcp

import (
	"fmt"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// incoming is a message that the peer has announced. It goes straight into the
// receive that it matches if that was posted by the time the first bytes come;
// else into a buffer, from which the receive takes it later.
//
// It lives until both the Matcher and the reading goroutines have let go of it.
type incoming struct {
	transport.Arrival
	p       *peer
	kind    kind
	id      uint64
	m       *fabric.Msg // the receive that matched
	unused  bool        // matched by nothing: the bytes are thrown away
	buf     []byte
	got     int  // bytes
	busy    int  // goroutines that are reading
	granted bool // asked, and told to send
	broken  bool // the rest won't come
	retract bool // because the sender withdrew it
}

// announced registers a message. Nothing about it was checked yet.
func (p *peer) announced(h *header) (*incoming, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.id < p.nextIn {
		return nil, fmt.Errorf("message %d announced after message %d", h.id, p.nextIn)
	}
	if h.kind != kindAsk {
		cost := int(h.length) + overhead
		if cost > p.f.o.window-p.unasked {
			return nil, fmt.Errorf("%d bytes sent beyond the window of %d", cost, p.f.o.window)
		}
		p.unasked += cost
	}
	in := p.idle.Get()
	if in == nil {
		in = new(incoming)
	}
	*in = incoming{p: p, kind: h.kind, id: h.id}
	in.From, in.Len, in.Desc, in.Via = p.rank, int(h.length), h.desc, in
	in.Key = fabric.Key{Comm: h.comm, Class: h.class, Tag: h.tag}
	if h.kind != kindEager {
		p.in[h.id] = in
	}
	p.nextIn = h.id + 1
	return in, nil
}

// whole reports whether all bytes are there, in buf.
func (in *incoming) whole() bool {
	return in.kind != kindAsk && in.got == in.Len && in.busy == 0
}

// cannotComplete reports whether the rest can't come, and no goroutine is reading it.
func (in *incoming) cannotComplete() bool {
	return in.busy == 0 && (in.broken || in.kind == kindAsk && in.p.err != nil)
}

// release makes in available again. The caller holds the lock.
func (p *peer) release(in *incoming) {
	delete(p.in, in.id)
	if in.kind != kindAsk {
		p.returnCredit(in.Len + overhead)
	}
	buf := in.buf
	*in = incoming{p: p}
	p.idle.Put(in)
	p.f.buffers.Put(buf)
}

// Fetch implements transport.Fetcher.
func (in *incoming) Fetch(_ *transport.Arrival, m *fabric.Msg) {
	p := in.p
	from, n := in.From, in.Len
	var err error
	done := m // what's to be completed
	p.mu.Lock()
	if m != nil && n > m.Len {
		err = &fabric.TruncatedError{Peer: from, Sent: n, Capacity: m.Len}
		m = nil
	}
	switch {
	case in.whole():
		if m != nil && n > 0 {
			buf := in.buf
			p.mu.Unlock()
			copy(m.Bytes(), buf) // no other goroutine has it any more
			p.mu.Lock()
		}
		p.release(in)
	case in.cannotComplete():
		if m != nil {
			err = p.why(in)
		}
		p.release(in)
	case in.kind == kindAsk && m == nil:
		p.note(kindDrop, in.id, 0)
		p.release(in)
	case m == nil:
		in.unused = true
	default:
		in.m, done = m, nil
		if in.kind == kindAsk {
			in.granted = true
			p.note(kindGrant, in.id, 0)
		}
	}
	p.mu.Unlock()
	p.pipes[0].write(portion)
	if done != nil {
		if err != nil {
			n = 0
		}
		done.Complete(n, from, err)
	}
}

// why returns the error for a message whose bytes don't come.
func (p *peer) why(in *incoming) error {
	if in.retract || p.err == nil {
		return fmt.Errorf("tcp: rank %d withdrew the message: %w", p.rank, fabric.ErrCanceled)
	}
	return p.err
}

// begin says where n bytes of a message at an offset go; nil means nowhere. The
// caller holds the lock.
func (p *peer) begin(pp *pipe, in *incoming, offset, n int) ([]byte, error) {
	if in.kind == kindAsk && !in.granted {
		return nil, fmt.Errorf("bytes of message %d, which was not asked for", in.id)
	}
	if in.got+n > in.Len {
		return nil, fmt.Errorf("more bytes of message %d than its %d", in.id, in.Len)
	}
	in.busy++
	pp.into = in
	if n == 0 || in.broken {
		return nil, nil
	}
	if in.buf == nil && in.m == nil && !in.unused {
		in.buf = p.f.buffers.Get(in.Len)
	}
	switch {
	case in.buf != nil:
		return in.buf[offset : offset+n], nil
	case in.m != nil:
		return at(in.m, offset, n), nil
	}
	return nil, nil
}

// received notes that the bytes of begin have been read, and completes the
// message if they were the last ones and it was matched.
func (p *peer) received(pp *pipe, in *incoming, n int, err error) {
	p.mu.Lock()
	pp.into = nil
	in.busy--
	if err == nil {
		in.got += n
	} else {
		in.broken = true
	}
	m, from, size := in.m, in.From, in.Len
	complete := in.got == in.Len
	switch {
	case in.busy > 0 || !complete && !in.broken:
		p.mu.Unlock()
		return
	case m == nil && !in.unused:
		// The Matcher has it still, and will Fetch it.
		delete(p.in, in.id)
		p.mu.Unlock()
		return
	}
	var merr error
	switch {
	case m == nil:
	case !complete && p.err == nil && !in.retract:
		merr = &fabric.PeerError{Peer: p.rank, Err: lost(pp.index, err)}
	case !complete:
		merr = p.why(in)
	case in.buf != nil:
		delete(p.in, in.id) // no other goroutine has it any more
		buf := in.buf
		p.mu.Unlock()
		copy(m.Bytes(), buf)
		p.mu.Lock()
	}
	p.release(in)
	p.mu.Unlock()
	p.pipes[0].write(portion)
	if m != nil {
		if merr != nil {
			size = 0
		}
		m.Complete(size, from, merr)
	}
}

// retracted takes back a message that its sender has withdrawn.
func (p *peer) retracted(id uint64) {
	p.mu.Lock()
	in := p.in[id]
	if in == nil || in.broken {
		p.mu.Unlock()
		return
	}
	in.broken, in.retract = true, true
	if in.busy > 0 {
		p.mu.Unlock() // the goroutine that reads it completes it
		return
	}
	m, from := in.m, in.From
	if m != nil || in.unused {
		err := p.why(in)
		p.release(in)
		p.mu.Unlock()
		p.pipes[0].write(portion)
		if m != nil {
			m.Complete(0, from, err)
		}
		return
	}
	p.mu.Unlock()
	// The Matcher has it, unless a goroutine is just about to Fetch it.
	found := p.f.Match.Retract(func(a *transport.Arrival) bool { return a == &in.Arrival })
	if len(found) > 0 {
		p.mu.Lock()
		p.release(in)
		p.mu.Unlock()
		p.pipes[0].write(portion)
	}
}

// credited raises the number of bytes that may be sent unasked.
func (p *peer) credited(n uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > uint64(1<<30) {
		return fmt.Errorf("credit of %d bytes", n)
	}
	p.room += int(n)
	return nil
}
