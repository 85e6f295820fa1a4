package ucx

import (
	"errors"
	"fmt"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// incoming is a message that the peer has announced.
type incoming struct {
	transport.Arrival
	p   *peer
	id  uint64
	ask bool // its bytes wait for a grant

	// Of a message that came with its bytes. The goroutine that delivers it and the one that fetches it may be two.
	mu      sync.Mutex
	data    []byte
	buf     []byte // what data lies in, unless it's the frame's
	fetched bool
	parked  bool // the one that delivers it is done with it
}

// announced registers a message that a valid header announces.
func (p *peer) announced(h *header, data []byte) (*incoming, error) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if h.id < p.nextIn {
		return nil, fmt.Errorf("it announced message %d after message %d", h.id, p.nextIn)
	}
	p.nextIn = h.id + 1
	if h.kind == kindEager {
		cost := len(data) + overhead
		if cost > p.f.o.window-p.unasked {
			return nil, fmt.Errorf("it sent %d bytes beyond the window of %d", cost, p.f.o.window)
		}
		p.unasked += cost
	}
	in := p.idle.Get()
	if in == nil {
		in = new(incoming)
		in.p, in.Via = p, in
	}
	in.id, in.ask, in.data, in.buf, in.fetched, in.parked = h.id, h.kind == kindAsk, data, nil, false, false
	in.From, in.Len, in.Desc = p.rank, int(h.length), h.desc
	in.Key = fabric.Key{Comm: h.comm, Class: h.class, Tag: h.tag}
	if in.ask {
		p.asked[in.id] = in
	}
	return in, nil
}

// deliver hands an announcement to the Matcher. data is the frame's, and needed no longer afterwards.
func (in *incoming) deliver() {
	p, ask, n := in.p, in.ask, in.Len
	p.f.Match.Arrive(&in.Arrival)
	if ask {
		return
	}
	in.mu.Lock()
	fetched := in.fetched
	if !fetched {
		if n > 0 {
			in.buf = p.f.buffers.Get(n)
			copy(in.buf, in.data)
			in.data = in.buf
		}
		in.parked = true
	}
	in.mu.Unlock()
	if fetched {
		in.release()
	}
}

// release makes a message that came with its bytes available again, and pays for them.
func (in *incoming) release() {
	p, n, buf := in.p, in.Len, in.buf
	in.data, in.buf = nil, nil
	p.f.buffers.Put(buf)
	p.f.mu.Lock()
	p.returnCredit(n + overhead)
	p.idle.Put(in)
	p.f.mu.Unlock()
}

// Fetch implements transport.Fetcher.
func (in *incoming) Fetch(_ *transport.Arrival, m *fabric.Msg) {
	if in.ask {
		in.grant(m)
		return
	}
	from, n := in.From, in.Len
	var err error
	in.mu.Lock()
	switch {
	case m == nil:
	case n > m.Len:
		err = &fabric.TruncatedError{Peer: from, Sent: n, Capacity: m.Len}
	case n > 0:
		copy(m.Bytes(), in.data)
	}
	in.fetched = true
	parked := in.parked
	in.mu.Unlock()
	if parked {
		in.release()
	}
	if m != nil {
		if err != nil {
			n = 0
		}
		m.Complete(n, from, err)
	}
}

// grant posts a receive to UCX, and asks for the bytes; or drops the message.
func (in *incoming) grant(m *fabric.Msg) {
	p, f, id, n := in.p, in.p.f, in.id, in.Len
	var err error
	f.mu.Lock()
	switch delete(p.asked, id); {
	case p.err != nil || f.gone:
		if err = p.err; err == nil {
			err = fabric.ErrClosed
		}
	case m == nil:
		p.note(kindDrop, id, 0)
	case n > m.Len:
		err = &fabric.TruncatedError{Peer: p.rank, Sent: n, Capacity: m.Len}
		p.note(kindDrop, id, 0)
	default:
		tag := f.draw.Uint64() &^ tagKind
		request, s := f.w.receive(m.Buf, n, tagData|tag, tagAll)
		if request == 0 {
			err = &fabric.PeerError{Peer: p.rank, Err: p.statusError(s)}
			p.note(kindDrop, id, 0)
			break
		}
		f.receives = append(f.receives, transfer{request: request, p: p, m: m, id: id, n: n})
		p.post(&header{kind: kindGrant, id: id, tag: tag}, nil)
		m = nil
	}
	p.idle.Put(in)
	f.mu.Unlock()
	if m != nil {
		m.Complete(0, p.rank, err)
	}
}

// retracted takes back a message that its sender has withdrawn.
func (p *peer) retracted(id uint64) {
	f := p.f
	f.mu.Lock()
	in := p.asked[id]
	for i := range f.receives {
		if r := &f.receives[i]; r.p == p && r.id == id && r.cause == nil {
			r.cause = errors.Join(fmt.Errorf("ucx: rank %d withdrew the message", p.rank), fabric.ErrCanceled)
			f.w.cancel(r.request)
		}
	}
	f.mu.Unlock()
	if in == nil {
		return
	}
	// The Matcher has it, unless a goroutine is just about to fetch it: that one's grant is answered by another word.
	if len(f.Match.Retract(func(a *transport.Arrival) bool { return a == &in.Arrival })) > 0 {
		f.mu.Lock()
		delete(p.asked, id)
		p.idle.Put(in)
		f.mu.Unlock()
	}
}
