package shm

import (
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
)

// If a receive is withdrawn before its message was copied in full, the next receive that matches gets the
// message. The sender may have been stopped, and go on at any time, so no goroutine waits for it.

// abandonPull ends the pull of a receive, if there is one. If all can be copied without the sender's help, it is, and
// the receive is done as if the message had come at the last moment. Else the message is given back to the Matcher. The
// progress lock is held.
func (f *Fabric) abandonPull(m *fabric.Msg, err error) bool {
	s := &f.pulls
	s.gather()
	for i, x := range s.active {
		if x.m != m {
			continue
		}
		moved, over := true, false
		for moved && !over {
			moved, over = f.advance(x)
		}
		s.active = append(s.active[:i], s.active[i+1:]...)
		if !over { // it waits for the sender's segment
			f.giveBack(x, m)
			f.finish(x, err)
			return true
		}
		break
	}
	if m.Done() {
		return true
	}
	for _, p := range f.near {
		found := false
		p.staged.all(func(_ uint64, at **pull) {
			if x := *at; x.m == m {
				x.keep()
				f.giveBack(x, m)
				found = true
			}
		})
		if found {
			m.Complete(0, m.Peer, err)
			return true
		}
	}
	return false // it's posted again, or never was
}

// keep has the pull go on without its receive, into a buffer of its own that has room for the whole message.
func (x *pull) keep() {
	buf := unsafe.Pointer(unsafe.SliceData(make([]byte, x.total)))
	kern.Copy(buf, x.m.Buf, x.done)
	x.kept = &fabric.Msg{Buf: buf, Len: x.total}
	x.m = x.kept
}

// giveBack returns to the Matcher the message that m matched.
func (f *Fabric) giveBack(x *pull, m *fabric.Msg) {
	a := f.arrivals.get()
	a.From, a.Key, a.Desc, a.Len, a.Via = x.p.rank, m.Key, m.Sent, x.total, a
	a.p, a.whole, a.id, a.addr, a.place = x.p, false, x.id, x.addr, x.place
	a.staged, a.standIn = x.staged, x.kept
	a.refs.Store(1)
	f.Match.Return(&a.Arrival, m)
}

// takeOver gives a message that was kept to the receive that matched it now, together with what is still to come.
// A pull without a receive drops its message.
func (f *Fabric) takeOver(x *pull) {
	m, kept := x.m, x.kept
	if at := x.p.staged.get(x.staged); at != nil {
		coming := *at
		if m != nil {
			kern.Copy(m.Buf, kept.Buf, coming.done)
		}
		coming.m, coming.kept = m, nil
	} else if m != nil {
		switch {
		case kept.Err == nil:
			kern.Copy(m.Buf, kept.Buf, x.total)
			m.Complete(x.total, x.p.rank, nil)
		case kept.Err == fabric.ErrCanceled: // its sender has withdrawn it
			f.repost(x)
		default:
			m.Complete(0, x.p.rank, kept.Err)
		}
	}
	f.pulls.end(x)
}
