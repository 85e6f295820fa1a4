package transport

import (
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
)

// Local carries messages from one rank to Matchers of the same process, its own
// among them, by one copy from the sender's buffer to the receiver's. A send is
// done when its message was received; small ones may be buffered. Safe for
// concurrent use.
type Local struct {
	from int
	own  *Matcher // of the sender; knows why a peer is gone

	mu     sync.Mutex
	free   Spares[parcel]
	buffer int // bytes up to which a message is buffered
	room   int // messages that may still be buffered
}

// maxBuffered bounds the messages of one rank that are buffered at once.
const maxBuffered = 1024

// NewLocal returns the sending half of rank from. Messages up to buffer bytes
// are buffered, so that their senders don't wait.
func NewLocal(from int, own *Matcher, buffer int) *Local {
	return &Local{from: from, own: own, buffer: buffer, room: maxBuffered}
}

// parcel is a message under way.
type parcel struct {
	Arrival
	local *Local
	to    *Matcher
	send  *fabric.Msg // nil once it's buffered
	data  []byte
}

// Send delivers m to the matcher of its peer.
func (l *Local) Send(to *Matcher, m *fabric.Msg) {
	if err := l.own.LostError(m.Peer); err != nil {
		m.Complete(0, m.Peer, err)
		return
	}
	l.mu.Lock()
	p := l.free.Get()
	if p == nil {
		p = &parcel{local: l, data: make([]byte, max(l.buffer, 0))}
		p.Via = p
	}
	buffered := m.Len <= l.buffer && l.room > 0
	if buffered {
		l.room--
	}
	l.mu.Unlock()
	p.From, p.Key, p.Desc, p.Len, p.to, p.send = l.from, m.Key, m.Desc, m.Len, to, m
	if buffered {
		p.send = nil
		copy(p.data, m.Bytes())
	}
	to.Arrive(&p.Arrival)
	if buffered {
		m.Complete(m.Len, m.Peer, nil)
	}
}

// Fetch implements Fetcher.
func (p *parcel) Fetch(_ *Arrival, m *fabric.Msg) {
	l, s, n, from := p.local, p.send, p.Len, p.From
	var err error // of the receive
	switch {
	case m == nil:
	case n > m.Len:
		err = &fabric.TruncatedError{Peer: from, Sent: n, Capacity: m.Len}
	case n == 0:
	case s != nil:
		kern.Copy(m.Buf, s.Buf, n)
	default:
		kern.Copy(m.Buf, unsafe.Pointer(&p.data[0]), n)
	}
	lost := m == nil && p.to.Closed()
	p.send, p.to = nil, nil
	l.mu.Lock()
	if s == nil {
		l.room++
	}
	l.free.Put(p)
	l.mu.Unlock()
	if s != nil {
		if lost {
			l.refuse(s)
		} else {
			s.Complete(n, s.Peer, nil)
		}
	}
	if m != nil {
		if err != nil {
			n = 0
		}
		m.Complete(n, from, err)
	}
}

// refuse fails a send whose receiver closed before it was received.
func (l *Local) refuse(s *fabric.Msg) {
	err := l.own.LostError(s.Peer)
	if err == nil {
		err = &fabric.PeerError{Peer: s.Peer, Err: fabric.ErrLeft}
	}
	s.Complete(0, s.Peer, err)
}

// Cancel withdraws a send that nothing was posted for, and completes it with the
// error. It reports false if the message is being received, or done.
func (l *Local) Cancel(to *Matcher, m *fabric.Msg, err error) bool {
	found := to.Retract(func(a *Arrival) bool {
		p, ok := a.Via.(*parcel)
		return ok && p.local == l && p.send == m
	})
	l.withdraw(found, err)
	return len(found) > 0
}

// CancelAll is Cancel for every send to the matcher that still waits.
func (l *Local) CancelAll(to *Matcher, err error) {
	l.withdraw(to.Retract(func(a *Arrival) bool {
		p, ok := a.Via.(*parcel)
		return ok && p.local == l && p.send != nil
	}), err)
}

func (l *Local) withdraw(found []*Arrival, err error) {
	for _, a := range found {
		p := a.Via.(*parcel)
		m := p.send
		p.send, p.to = nil, nil
		l.mu.Lock()
		l.free.Put(p)
		l.mu.Unlock()
		m.Complete(0, m.Peer, err)
	}
}
