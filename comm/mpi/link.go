package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/internal/dl"
	"github.com/chorus-comms/chorus/internal/sys"
)

// link is the messages of one world of ranks, on a communicator of MPI's of their own, as a fabric.
//
// Short messages travel with a head. Long ones are announced, and their bytes go from the sender's buffer to the
// receiver's once a receive has matched: so either side can withdraw them until then.
type link struct {
	transport.Base
	lib     *library
	comm    uintptr
	buffers transport.Buffers
	turn    sync.Mutex  // held while one goroutine makes progress
	events  []event     // with turn held
	onHost  int         // ranks
	crowded bool        // they are more than cores
	busy    atomic.Bool // bytes of messages are moving

	// Within library.exec.
	ring     [ringSlots]slot // posted receives of heads, in order
	head     int
	queue    [][]*sending // heads that are being sent, by peer
	sent     int          // of them
	idle     []*sending
	next     uint64 // announced messages
	tag      int
	out      map[uint64]*fabric.Msg   // announced, and not granted
	in       map[inKey]*incoming      // announced by others, and not complete
	moving   []*transfer              // bytes of announced messages
	own      map[uint32]*communicator // of communicators, for MPI's own collectives
	bye      []bool                   // peers whose last message has come
	byes     int
	failures time.Time // when dead peers were last looked for
	broken   error     // why the ring is still
	closing  bool
	gone     bool    // all is given back
	left     []*call // collectives whose waits were given up
}

const ringSlots = 8

// slot is a posted receive of a head, and what comes with it.
type slot struct {
	request uintptr
	buf     []byte
}

// sending is a head on its way.
type sending struct {
	request uintptr
	buf     []byte
}

type inKey struct {
	from int
	id   uint64
}

// incoming is a message of another rank, until its receive has completed.
type incoming struct {
	transport.Arrival
	l         *link
	kind      kind
	id        uint64
	buf       []byte // the bytes of a short one
	retracted bool
	move      *transfer
}

// transfer is the bytes of an announced message on their way: in pieces, since MPI counts in 32 bits.
type transfer struct {
	m        *fabric.Msg // nil: it has completed, or failed, before MPI let go of the bytes
	in       *incoming   // nil: this rank sends
	peer     int
	requests []uintptr
	done     int
	memory   any // what keeps the bytes in place
}

// event is what progress has found, to be passed on outside of exec.
type event struct {
	kind    kind
	in      *incoming
	m       *fabric.Msg
	n       int
	from    int
	err     error
	payload []byte
}

// The kinds of event that aren't those of a message.
const (
	eventDone kind = iota + 100
	eventLost
	eventBroken
)

// pieceBytes is the most that one call of MPI moves: a variable for the tests.
var pieceBytes = 1 << 30

// newLink opens this rank's links on a communicator of MPI's.
func newLink(lib *library, comm uintptr, rank, size, onHost int) (*link, error) {
	l := &link{Base: transport.NewBase("mpi", rank, size, transport.NewMatcher(size), eagerBytes), lib: lib, comm: comm,
		queue: make([][]*sending, size), out: map[uint64]*fabric.Msg{}, in: map[inKey]*incoming{},
		own: map[uint32]*communicator{}, bye: make([]bool, size), onHost: onHost,
		crowded: onHost > runtime.NumCPU()}
	l.bye[rank], l.byes = true, 1
	var err error
	lib.exec(func() {
		for i := range l.ring {
			l.ring[i].buf = make([]byte, headerBytes+eagerBytes)
			if err = l.receive(&l.ring[i]); err != nil {
				return
			}
		}
		// All ranks have just made the communicator, so that a failed one among them is a false report. Later ones may
		// be made while a rank dies.
		if !lib.asked {
			lib.asked, lib.tells = true, lib.tells && len(l.dead()) == 0
		}
		lib.links[l] = true
	})
	return l, err
}

// receive posts a slot of the ring.
func (l *link) receive(s *slot) error {
	r := l.lib.Irecv.Call(addr(&s.buf[0]), uintptr(len(s.buf)), l.lib.byte, uintptr(l.lib.family.AnySource), 0, l.comm,
		addr(&s.request))
	return l.lib.check("MPI_Irecv", r)
}

// put sends a head, and what goes with it. It's called within exec.
func (l *link) put(peer int, h *header, payload []byte) error {
	if l.closing {
		return fabric.ErrClosed
	}
	var s *sending
	if n := len(l.idle); n > 0 {
		s, l.idle = l.idle[n-1], l.idle[:n-1]
	} else {
		s = &sending{buf: make([]byte, headerBytes+eagerBytes)}
	}
	h.put(s.buf)
	n := headerBytes + copy(s.buf[headerBytes:], payload)
	r := l.lib.Isend.Call(addr(&s.buf[0]), uintptr(n), l.lib.byte, uintptr(peer), 0, l.comm, addr(&s.request))
	if err := l.lib.check("MPI_Isend", r); err != nil {
		l.idle = append(l.idle, s)
		return &fabric.PeerError{Peer: peer, Err: err}
	}
	l.queue[peer] = append(l.queue[peer], s)
	l.sent++
	return nil
}

// Send implements fabric.Fabric.
func (l *link) Send(m *fabric.Msg) {
	m.PrivP = l // marks a send, for Cancel
	if m.Peer == l.Rank() {
		l.SendTo(l.Match, m)
		return
	}
	err := l.reachable(m.Peer)
	if err == nil {
		h := header{kind: kindEager, key: m.Key, length: uint64(m.Len), desc: m.Desc}
		l.lib.exec(func() {
			if m.Len <= eagerBytes {
				err = l.put(m.Peer, &h, m.Bytes())
				return
			}
			l.next++
			h.kind, h.id = kindAsk, l.next
			if err = l.put(m.Peer, &h, nil); err == nil {
				l.out[h.id] = m
			}
		})
		if err == nil && m.Len > eagerBytes {
			return
		}
	}
	if err != nil {
		m.Complete(0, m.Peer, err)
	} else {
		m.Complete(m.Len, m.Peer, nil)
	}
}

// reachable says why a peer can't be sent anything.
func (l *link) reachable(peer int) error {
	switch {
	case !l.Has(peer):
		return l.NoRank(peer)
	case l.Closed():
		return fabric.ErrClosed
	}
	return l.Match.LostError(peer)
}

// Control implements fabric.Messenger.
func (l *link) Control(peer int, payload []byte) error {
	if err := l.Addressed(peer, payload); err != nil {
		return err
	}
	if peer == l.Rank() {
		l.Hand(peer, payload)
		return nil
	}
	err := l.Match.LostError(peer)
	if err == nil {
		l.lib.exec(func() { err = l.put(peer, &header{kind: kindControl, length: uint64(len(payload))}, payload) })
	}
	return err
}

// Fetch implements transport.Fetcher.
func (in *incoming) Fetch(_ *transport.Arrival, m *fabric.Msg) {
	l, n, from := in.l, in.Len, in.From
	var err error
	if m != nil && n > m.Len {
		err = &fabric.TruncatedError{Peer: from, Sent: n, Capacity: m.Len}
	}
	if in.kind == kindEager {
		if m != nil && err == nil {
			copy(m.Bytes(), in.buf)
		}
		l.buffers.Put(in.buf)
	} else {
		moves := false
		l.lib.exec(func() {
			switch {
			case in.retracted && err == nil:
				err = l.withdrew(from)
			case in.retracted:
			case m == nil || err != nil:
				delete(l.in, inKey{from, in.id})
				l.put(from, &header{kind: kindDrop, id: in.id}, nil)
			default:
				err = l.fetch(in, m)
				moves = err == nil
			}
		})
		if moves {
			return
		}
	}
	if m == nil {
		return
	}
	if err != nil {
		n = 0
	}
	m.Complete(n, from, err)
}

func (l *link) withdrew(from int) error {
	return fmt.Errorf("mpi: rank %d withdrew the message: %w", from, fabric.ErrCanceled)
}

// fetch posts the receives of an announced message's bytes, and asks for them. It's called within exec.
func (l *link) fetch(in *incoming, m *fabric.Msg) error {
	l.tag = l.tag%l.lib.maxTag + 1
	x := &transfer{m: m, in: in, peer: in.From}
	if err := l.move(x, l.lib.Irecv, "MPI_Irecv", m.Buf, in.Len, l.tag); err != nil {
		return err
	}
	in.move = x
	return l.put(in.From, &header{kind: kindGrant, id: in.id, length: uint64(l.tag)}, nil)
}

// move starts a transfer's calls.
func (l *link) move(x *transfer, call dl.Func, name string, p unsafe.Pointer, n, tag int) error {
	x.memory = p
	x.requests = make([]uintptr, 0, (n+pieceBytes-1)/pieceBytes) // MPI knows their addresses for one call only
	for off := 0; off < n; off += pieceBytes {
		x.requests = append(x.requests, 0)
		r := call.Call(uintptr(p)+uintptr(off), uintptr(min(pieceBytes, n-off)), l.lib.byte, uintptr(x.peer), uintptr(tag),
			l.comm, addr(&x.requests[len(x.requests)-1]))
		if err := l.lib.check(name, r); err != nil {
			x.requests = x.requests[:len(x.requests)-1]
			x.m = nil // what has begun is left alone
			l.moving = append(l.moving, x)
			return &fabric.PeerError{Peer: x.peer, Err: err}
		}
	}
	l.moving = append(l.moving, x)
	return nil
}

// Cancel implements fabric.Fabric. Bytes that are moving and don't come to an end cost the link to the peer; MPI may
// touch them until the process ends.
func (l *link) Cancel(m *fabric.Msg) {
	switch {
	case m.Done():
		return
	case m.PrivP == nil:
		if l.Match.Withdraw(m, fabric.ErrCanceled) {
			return
		}
	case m.Peer == l.Rank():
		l.Own.Cancel(l.Match, m, fabric.ErrCanceled)
		transport.AwaitDone(m, 0)
		return
	default:
		found := false
		l.lib.exec(func() {
			for id, o := range l.out {
				if found = o == m; found {
					delete(l.out, id)
					l.put(m.Peer, &header{kind: kindRetract, id: id}, nil)
					break
				}
			}
		})
		if found {
			m.Complete(0, m.Peer, fabric.ErrCanceled)
			return
		}
	}
	for end := time.Now().Add(cancelGrace); !m.Done() && time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		l.progress()
	}
	if m.Done() {
		return
	}
	peer := fabric.AnySource
	l.lib.exec(func() {
		for _, x := range l.moving {
			if x.m == m {
				peer = x.peer
			}
		}
	})
	if peer != fabric.AnySource {
		l.fail(peer, fmt.Errorf("a message of %d bytes was withdrawn on its way, and didn't move for %v", m.Len,
			cancelGrace))
	}
	transport.AwaitDone(m, 0)
}

// cancelGrace is how long the bytes of a message that is withdrawn may still move.
const cancelGrace = 2 * time.Second

// fail ends the link to a peer that is lost.
func (l *link) fail(peer int, why error) {
	var lost []*fabric.Msg
	l.lib.exec(func() {
		for id, m := range l.out {
			if m.Peer == peer {
				lost = append(lost, m)
				delete(l.out, id)
			}
		}
		for _, x := range l.moving {
			if x.peer == peer && x.m != nil {
				lost = append(lost, x.m)
				l.abandon(x)
			}
		}
		l.goodbye(peer)
	})
	l.Match.Lost(peer, why)
	err := l.Match.LostError(peer)
	if err == nil {
		err = &fabric.PeerError{Peer: peer, Err: why}
	}
	for _, m := range lost {
		m.Complete(0, peer, err)
	}
}

// abandon gives up waiting for a transfer, whose receives may still be withdrawn. It's called within exec.
func (l *link) abandon(x *transfer) {
	x.m = nil
	if x.in != nil {
		delete(l.in, inKey{x.peer, x.in.id})
		for i := range x.requests[x.done:] {
			l.lib.Cancel.Call(addr(&x.requests[x.done+i]))
		}
	}
}

// goodbye notes that nothing more comes from a peer. It's called within exec.
func (l *link) goodbye(peer int) {
	if !l.bye[peer] {
		l.bye[peer] = true
		l.byes++
	}
}

// Wait implements fabric.Fabric.
func (l *link) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	if err := l.until(w, m.Done, spinTime); err != nil {
		return err
	}
	return m.Err
}

// The stages of a wait: looks that give the core away at most, and then pauses that get longer. MPI moves data only
// while it's called: so there are looks for longer while data is moving.
const (
	spinTime   = 200 * time.Microsecond
	movingTime = 20 * time.Millisecond
	firstPause = 20 * time.Microsecond
	lastPause  = time.Millisecond
)

// until makes progress until done reports true, or w gives up. It looks for so long before it pauses.
func (l *link) until(w *fabric.Waiter, done func() bool, spin time.Duration) error {
	var since time.Time
	pause := firstPause
	for i := 0; ; i++ {
		if done() {
			return nil
		}
		if l.progress() {
			since, pause = time.Time{}, firstPause
			continue
		}
		if i%32 == 31 || w.Abort.Raised() {
			if done() {
				return nil
			}
			if err := w.Check(); err != nil {
				return err
			}
		}
		if l.crowded {
			sys.Yield()
		}
		switch {
		case i%8 < 7:
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > spin && (!l.busy.Load() || time.Since(since) > movingTime):
			if err := w.Check(); err != nil {
				return err
			}
			time.Sleep(pause)
			pause = min(2*pause, lastPause)
		default:
			runtime.Gosched()
		}
	}
}

// Forget implements fabric.Announcer. It also gives back the communicator's own of MPI's.
func (l *link) Forget(comm uint32) {
	l.Match.Forget(comm)
	l.lib.exec(func() {
		if c := l.own[comm]; c != nil && c.left == 0 {
			l.lib.CommFree.Call(addr(&c.handle))
		}
		delete(l.own, comm)
	})
}

// Close implements fabric.Fabric. The communicator of MPI's is given back once all others have closed.
func (l *link) Close(ctx context.Context) error {
	if !l.Shut() {
		return nil
	}
	for end := time.Now().Add(closeGrace); ctx.Err() == nil && time.Now().Before(end); time.Sleep(firstPause) {
		busy := false
		if l.progress(); !busy {
			l.lib.exec(func() { busy = slices.ContainsFunc(l.moving, func(x *transfer) bool { return x.m != nil }) })
		}
		if !busy {
			break
		}
	}
	l.Drop()
	var drop []*fabric.Msg
	l.lib.exec(func() {
		for id, m := range l.out {
			drop = append(drop, m)
			l.put(m.Peer, &header{kind: kindRetract, id: id}, nil)
		}
		clear(l.out)
		for _, x := range l.moving {
			if x.m != nil {
				drop = append(drop, x.m)
				l.abandon(x)
			}
		}
		for r := range l.Size() {
			if r != l.Rank() {
				l.put(r, &header{kind: kindGoodbye}, nil) // a peer that has gone needs none
			}
		}
		l.closing = true
	})
	for _, m := range drop {
		m.Complete(0, m.Peer, fabric.ErrClosed)
	}
	return l.lib.release(ctx)
}

// closeGrace is how long Close waits for bytes that are moving.
const closeGrace = 2 * time.Second

// errFailed is what is said of a peer whose death MPI reports.
var errFailed = errors.New("MPI reports that its process has failed")
