package gloo

import (
	"math"
	"slices"

	"github.com/chorus-comms/chorus/fabric"
)

// A slotState is what is under way between this rank and another one under a slot. Everything matches in
// order.
//
// A receive sends recvReady, a send sends sendReady, and the payload comes when both have. Neither can be taken
// back: that of a withdrawn message serves the next one.
type slotState struct {
	recvs       []*fabric.Msg // that wait
	requested   int           // recvReady sent without a payload yet: as many as recvs, and those of receives withdrawn
	sends       []*fabric.Msg // that wait for the other's recvReady
	offered     int           // sendReady sent without a payload yet: as many as sends, and those of sends withdrawn
	room        []uint64      // of the other's recvReady without a send yet
	unrequested []uint64      // the other's sendReady without a recvReady yet; their order among all of the mesh
	unmatched   int           // recvReady sent without a sendReady yet
	early       [][]byte      // payloads for receives that were withdrawn
	seen        bool          // the other has come to the operation
}

// idle reports whether nothing is under way.
func (l *slotState) idle() bool {
	return l.requested+l.offered+l.unmatched+len(l.recvs)+len(l.sends)+len(l.room)+len(l.unrequested)+len(l.early) == 0
}

// take removes a message from a list of them.
func take(list *[]*fabric.Msg, m *fabric.Msg) bool {
	i := slices.Index(*list, m)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return i >= 0
}

// pop removes the head of a list.
func pop[T any](list *[]T) T {
	head := (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return head
}

// announcedRoom is how much room a receive announces. A receive of a point-to-point message announces no limit, since
// this rank finds a message that is too long without harm, and the announced room of a withdrawn receive must not
// bound the next.
func announcedRoom(m *fabric.Msg) uint64 {
	if m.Key.Class == fabric.PointToPoint {
		return math.MaxInt64
	}
	return uint64(m.Len)
}

// recv posts a receive.
func (p *pair) recv(m *fabric.Msg) {
	l := p.state(m.Key.Tag)
	if len(l.early) > 0 {
		p.deliverEarly(m, pop(&l.early))
		p.prune(m.Key.Tag)
		return
	}
	if l.recvs = append(l.recvs, m); len(l.recvs) > l.requested {
		p.ask(l, m)
	}
}

// ask says that this rank takes a payload.
func (p *pair) ask(l *slotState, m *fabric.Msg) {
	l.requested++
	if len(l.unrequested) > 0 {
		pop(&l.unrequested)
	} else {
		l.unmatched++
	}
	p.push(preamble{recvReady, m.Key.Tag, announcedRoom(m)}, nil)
}

// send posts a send.
func (p *pair) send(m *fabric.Msg) {
	l := p.state(m.Key.Tag)
	if len(l.sends) == l.offered {
		l.offered++
		p.push(preamble{sendReady, m.Key.Tag, uint64(m.Len)}, nil)
	}
	l.sends = append(l.sends, m)
	p.match(m.Key.Tag, l)
}

// match sends the payloads that both sides are ready for. One that is longer than the other's room fails: PyTorch would
// abort its process.
func (p *pair) match(slot uint64, l *slotState) {
	for len(l.sends) > 0 && len(l.room) > 0 {
		m := pop(&l.sends)
		if room := l.room[0]; uint64(m.Len) > room {
			m.Complete(0, p.peer, &fabric.TruncatedError{Peer: p.peer, Sent: m.Len, Capacity: int(room)})
			continue
		}
		pop(&l.room)
		l.offered--
		p.push(preamble{data, slot, uint64(m.Len)}, m)
	}
	p.prune(slot)
}

// deliver completes a receive that has got n bytes, or fails it if they are too many.
func (p *pair) deliver(m *fabric.Msg, n int) {
	m.Sent = m.Desc
	if n > m.Len {
		m.Complete(0, p.peer, &fabric.TruncatedError{Peer: p.peer, Sent: n, Capacity: m.Len})
		return
	}
	m.Complete(n, p.peer, nil)
}

// deliverEarly is deliver for a payload that came early.
func (p *pair) deliverEarly(m *fabric.Msg, payload []byte) {
	if len(payload) <= m.Len {
		copy(m.Bytes(), payload)
	}
	p.deliver(m, len(payload))
}

// notice takes a frame without a payload.
func (p *pair) notice(f preamble) {
	l := p.state(f.slot)
	l.seen = true
	switch {
	case f.op == recvReady:
		l.room = append(l.room, f.length)
		p.match(f.slot, l)
	case l.unmatched > 0:
		l.unmatched--
	default:
		p.m.order++
		l.unrequested = append(l.unrequested, p.m.order)
		if m := p.m.popAnySource(f.slot); m != nil {
			l.recvs = append(l.recvs, m)
			p.ask(l, m)
		}
	}
}

// answer returns the receive that a payload is for; nil if it was withdrawn. asked reports whether there was one.
func (p *pair) answer(slot uint64) (m *fabric.Msg, asked bool) {
	l := p.state(slot)
	l.seen = true
	if l.requested == 0 {
		return nil, false
	}
	l.requested--
	if len(l.recvs) > 0 {
		m = pop(&l.recvs)
	} else {
		m = p.m.popAnySource(slot)
	}
	p.prune(slot)
	return m, true
}

// state returns what is under way under a slot.
func (p *pair) state(slot uint64) *slotState {
	l := p.states[slot]
	if l == nil {
		l = new(slotState)
		p.states[slot] = l
	}
	return l
}

// prune forgets a slot of point-to-point messages under which nothing is under way. Slots of collectives say which
// ranks have come, and are forgotten at the end of the collective.
func (p *pair) prune(slot uint64) {
	if l := p.states[slot]; l != nil && !collective(slot) && l.idle() {
		delete(p.states, slot)
	}
}
