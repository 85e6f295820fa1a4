package mpi

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// progress lets MPI work, and passes on what has come. It reports whether something has. One goroutine at a time does
// it, so that messages keep their order; others return at once.
func (l *link) progress() bool {
	if !l.turn.TryLock() {
		return false
	}
	defer l.turn.Unlock()
	l.lib.exec(l.poll)
	if len(l.events) == 0 {
		return false
	}
	for i := range l.events {
		l.pass(&l.events[i])
		l.events[i] = event{}
	}
	l.events = l.events[:0]
	return true
}

// pass passes an event on.
func (l *link) pass(e *event) {
	switch e.kind {
	case kindEager, kindAsk:
		l.Match.Arrive(&e.in.Arrival)
	case kindRetract: // the Matcher has it, unless a goroutine is just about to fetch it
		l.Match.Retract(func(a *transport.Arrival) bool { return a == &e.in.Arrival })
	case kindControl:
		l.Match.Control(e.from, e.payload)
	case kindGoodbye:
		l.Match.Left(e.from)
	case eventDone:
		e.m.Complete(e.n, e.from, e.err)
	case eventLost:
		l.fail(e.from, e.err)
	case eventBroken:
		l.Match.Close(e.err) // of which no rank is to blame
	}
}

// poll looks at all that is under way. It's called within exec, with turn held.
func (l *link) poll() {
	if l.gone {
		return
	}
	for range 4 * ringSlots { // then others get their turn
		s := &l.ring[l.head]
		if l.broken != nil || s.request == 0 {
			break
		}
		done, err := l.lib.test(&s.request)
		if err != nil {
			l.failed(err)
			break
		}
		if !done {
			break
		}
		from := int(l.source())
		var h header
		if h.read(s.buf); l.Has(from) {
			l.take(from, &h, s.buf[headerBytes:])
		}
		if err := l.receive(s); err != nil {
			s.request = 0
			l.failed(err)
			break
		}
		l.head = (l.head + 1) % ringSlots
	}
	if l.sent > 0 {
		for peer := range l.queue {
			l.pollSends(peer)
		}
	}
	l.moving = slices.DeleteFunc(l.moving, l.pollMove)
	if moving := len(l.moving) > 0; moving != l.busy.Load() {
		l.busy.Store(moving)
	}
	l.left = slices.DeleteFunc(l.left, func(x *call) bool {
		done, _ := l.lib.test(&x.request) // its operation has failed already
		return done
	})
	l.pollFailures()
}

// source is the sender that the last test has found.
func (l *link) source() int32 {
	s := l.lib.out.status[l.lib.family.Source:]
	return int32(s[0]) | int32(s[1])<<8 | int32(s[2])<<16 | int32(s[3])<<24
}

// take takes a head. The buffer is the ring's.
func (l *link) take(from int, h *header, payload []byte) {
	switch h.kind {
	case kindEager, kindAsk:
		if h.kind == kindEager && h.length > eagerBytes || h.length > 1<<62 {
			return
		}
		in := &incoming{l: l, kind: h.kind, id: h.id}
		in.Arrival = transport.Arrival{From: from, Key: h.key, Desc: h.desc, Len: int(h.length), Via: in}
		if h.kind == kindAsk {
			l.in[inKey{from, h.id}] = in
		} else if n := int(h.length); n > 0 {
			in.buf = l.buffers.Get(n)
			copy(in.buf, payload)
		}
		l.events = append(l.events, event{kind: h.kind, in: in})
	case kindGrant:
		m := l.out[h.id]
		if m == nil || m.Peer != from {
			return // canceled meanwhile
		}
		delete(l.out, h.id)
		x := &transfer{m: m, peer: from}
		if err := l.move(x, l.lib.Isend, "MPI_Isend", m.Buf, m.Len, int(h.length)); err != nil {
			l.events = append(l.events, event{kind: eventDone, m: m, from: from, err: err})
		}
	case kindDrop:
		if m := l.out[h.id]; m != nil && m.Peer == from {
			delete(l.out, h.id)
			l.events = append(l.events, event{kind: eventDone, m: m, n: m.Len, from: from})
		}
	case kindRetract:
		in := l.in[inKey{from, h.id}]
		if in == nil {
			return
		}
		delete(l.in, inKey{from, h.id})
		in.retracted = true
		if x := in.move; x == nil {
			l.events = append(l.events, event{kind: kindRetract, in: in})
		} else if m := x.m; m != nil {
			l.abandon(x)
			l.events = append(l.events, event{kind: eventDone, m: m, from: from, err: l.withdrew(from)})
		}
	case kindControl:
		if h.length <= fabric.MaxControl {
			l.events = append(l.events, event{kind: kindControl, from: from, payload: slices.Clone(payload[:h.length])})
		}
	case kindGoodbye:
		l.goodbye(from)
		l.events = append(l.events, event{kind: kindGoodbye, from: from})
		for id, m := range l.out {
			if m.Peer == from {
				delete(l.out, id)
				err := &fabric.PeerError{Peer: from, Err: fabric.ErrLeft}
				l.events = append(l.events, event{kind: eventDone, m: m, from: from, err: err})
			}
		}
	}
}

// pollSends looks at the heads on their way to a peer, which MPI ends in their order.
func (l *link) pollSends(peer int) {
	q := l.queue[peer]
	n := 0
	for ; n < len(q); n++ {
		done, err := l.lib.test(&q[n].request)
		if err != nil && !l.bye[peer] {
			l.events = append(l.events, event{kind: eventLost, from: peer, err: err})
		}
		if !done {
			break
		}
		if len(l.idle) < 64 {
			l.idle = append(l.idle, q[n])
		}
	}
	if n > 0 {
		l.sent -= n
		l.queue[peer] = slices.Delete(q, 0, n)
	}
}

// pollMove looks at a transfer, and reports whether it's over.
func (l *link) pollMove(x *transfer) bool {
	for x.done < len(x.requests) {
		done, err := l.lib.test(&x.requests[x.done])
		if err != nil && x.m != nil {
			l.events = append(l.events, event{kind: eventLost, from: x.peer, err: err})
		}
		if !done || err != nil && x.m != nil {
			return false
		}
		x.done++
	}
	if m := x.m; m != nil {
		if x.in != nil {
			delete(l.in, inKey{x.peer, x.in.id})
			l.events = append(l.events, event{kind: eventDone, m: m, n: x.in.Len, from: x.peer})
		} else {
			l.events = append(l.events, event{kind: eventDone, m: m, n: m.Len, from: x.peer})
		}
	}
	return true
}

// failed ends the ring because a receive from anyone has failed, unless that's since a peer has.
func (l *link) failed(err error) {
	l.failures = time.Time{}
	if l.pollFailures() {
		return
	}
	l.broken = err
	l.events = append(l.events, event{kind: eventBroken, err: err})
	for id, m := range l.out {
		delete(l.out, id)
		l.events = append(l.events, event{kind: eventDone, m: m, from: m.Peer, err: err})
	}
}

// failuresPause is how often dead peers are looked for.
const failuresPause = 200 * time.Millisecond

// pollFailures asks MPI which peers have died, where it can tell, and reports whether some have.
func (l *link) pollFailures() (some bool) {
	if !l.lib.tells || time.Since(l.failures) < failuresPause {
		return false
	}
	l.failures = time.Now()
	for _, r := range l.dead() {
		some = true
		if !l.bye[r] {
			l.events = append(l.events, event{kind: eventLost, from: r, err: errFailed})
		}
	}
	if some {
		l.lib.FailureAck.Call(l.comm) // so that receives from anyone go on
	}
	return some
}

// dead are the peers that MPI reports as failed.
func (l *link) dead() (peers []int) {
	x, o := l.lib, l.lib.out
	if int32(x.GetFailed.Call(l.comm, addr(&o.handle))) != 0 {
		return nil
	}
	group := o.handle
	defer func() { o.handle = group; x.GroupFree.Call(addr(&o.handle)) }()
	if int32(x.GroupSize.Call(group, addr(&o.n))) != 0 || o.n <= 0 || int(o.n) >= l.Size() {
		return nil
	}
	n := int(o.n)
	dead, ranks := make([]int32, n), make([]int32, n)
	for i := range dead {
		dead[i] = int32(i)
	}
	all := new(uintptr)
	if int32(x.CommGroup.Call(l.comm, addr(all))) != 0 {
		return nil
	}
	defer x.GroupFree.Call(addr(all))
	if int32(x.TranslateRank.Call(group, uintptr(n), addr(&dead[0]), *all, addr(&ranks[0]))) != 0 {
		return nil
	}
	runtime.KeepAlive(dead)
	for _, r := range ranks {
		if l.Has(int(r)) {
			peers = append(peers, int(r))
		}
	}
	return peers
}

// serve makes progress for links while no call waits, for news of failures and for messages whose other side waits.
func (l *library) serve() {
	const busy, quiet = 500 * time.Microsecond, 10 * time.Millisecond
	pause := busy
	for {
		time.Sleep(pause)
		var links []*link
		over := false
		l.exec(func() {
			over = l.over
			for x := range l.links {
				links = append(links, x)
			}
		})
		if over {
			return
		}
		pause = min(2*pause, quiet)
		for _, x := range links {
			if x.progress() {
				pause = busy
			}
			l.exec(x.free)
		}
	}
}

// free gives a closed link back, once nothing comes any more. It's called within exec.
func (l *link) free() {
	if !l.closing || l.byes < l.Size() || l.sent+len(l.moving)+len(l.left) > 0 || !l.lib.links[l] {
		return
	}
	l.stop()
}

// stop withdraws the receives of a link and frees its communicator. It's called within exec.
func (l *link) stop() {
	delete(l.lib.links, l)
	for i := range l.ring {
		if s := &l.ring[i]; s.request != 0 {
			l.lib.Cancel.Call(addr(&s.request))
			for range 1000 {
				if done, err := l.lib.test(&s.request); done || err != nil {
					break
				}
			}
			s.request = 0
		}
	}
	if l.sent+len(l.moving)+len(l.left) == 0 {
		l.lib.CommFree.Call(addr(&l.comm))
	}
	l.gone = true
}

// drain gives back all links, of which none is open any more, before MPI ends. It waits for the others' last
// messages.
func (l *library) drain(ctx context.Context) {
	for {
		left := 0
		var links []*link
		l.exec(func() {
			for x := range l.links {
				links = append(links, x)
			}
		})
		for _, x := range links {
			x.progress()
			l.exec(x.free)
		}
		l.exec(func() { left = len(l.links) })
		if left == 0 {
			return
		}
		if ctx.Err() != nil {
			break
		}
		time.Sleep(firstPause)
	}
	l.exec(func() {
		for x := range l.links {
			x.stop()
		}
	})
}
