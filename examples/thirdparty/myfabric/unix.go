package myfabric

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// Fabric is one rank's end. It implements fabric.Fabric.
type Fabric struct {
	rank   int
	links  []*link
	match  *fabric.Matcher
	closed atomic.Bool

	mu   sync.Mutex
	free *parcel
}

// start begins to read and write. A rank dialed those up to itself and accepted those from itself up.
func start(rank int, accepted, dialed []net.Conn) *Fabric {
	f := &Fabric{rank: rank, match: fabric.NewMatcher(len(dialed)), links: make([]*link, len(dialed))}
	for p := range f.links {
		l := &link{f: f, peer: p, out: dialed[p], in: accepted[p], readDone: make(chan struct{}), writeDone: make(chan struct{})}
		if l.out == nil {
			l.out = l.in
		}
		if l.in == nil {
			l.in = l.out
		}
		l.work.L = &l.mu
		f.links[p] = l
	}
	for _, l := range f.links {
		go l.read()
		go l.write()
	}
	return f
}

// Name implements fabric.Fabric.
func (f *Fabric) Name() string { return Name }

// Rank implements fabric.Fabric.
func (f *Fabric) Rank() int { return f.rank }

// Size implements fabric.Fabric.
func (f *Fabric) Size() int { return len(f.links) }

// Hosts implements fabric.Fabric: sockets of this kind reach one host only.
func (f *Fabric) Hosts() []int { return make([]int, len(f.links)) }

// Path implements fabric.Fabric.
func (f *Fabric) Path(peer int) string {
	if peer == f.rank {
		return "self"
	}
	return Name
}

// Handle implements fabric.Fabric.
func (f *Fabric) Handle(h fabric.Handler) { f.match.Handle(h) }

// Announce implements fabric.Fabric.
func (f *Fabric) Announce(comm uint32, tag uint64, desc *fabric.Desc) {
	f.match.Announce(comm, tag, desc)
}

// Announced implements fabric.Fabric.
func (f *Fabric) Announced(comm uint32, tag uint64) (fabric.Desc, bool) {
	return f.match.Announced(comm, tag)
}

// Forget implements fabric.Fabric.
func (f *Fabric) Forget(comm uint32) { f.match.Forget(comm) }

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	if m.Peer < 0 || m.Peer >= f.Size() {
		m.Complete(0, m.Peer, fmt.Errorf("unix: rank %d is not in a world of %d", m.Peer, f.Size()))
		return
	}
	if m.Len > maxMessage {
		m.Complete(0, m.Peer, fmt.Errorf("unix: message of %d bytes; the limit is %d", m.Len, maxMessage))
		return
	}
	if err := f.match.LostError(m.Peer); err != nil && !f.closed.Load() {
		m.Complete(0, m.Peer, err)
		return
	}
	if !f.links[m.Peer].post(m) {
		m.Complete(0, m.Peer, fabric.ErrClosed)
	}
}

// Recv implements fabric.Fabric.
func (f *Fabric) Recv(m *fabric.Msg) {
	m.PrivP = nil
	if m.Peer < fabric.AnySource || m.Peer >= f.Size() {
		m.Complete(0, m.Peer, fmt.Errorf("unix: rank %d is not in a world of %d", m.Peer, f.Size()))
		return
	}
	f.match.Post(m)
}

// Wait implements fabric.Fabric. The links' goroutines complete the messages, so it gives them the core.
func (f *Fabric) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	if err := w.Block(m.Done); err != nil {
		return err
	}
	return m.Err
}

// Cancel implements fabric.Fabric.
func (f *Fabric) Cancel(m *fabric.Msg) {
	l, send := m.PrivP.(*link)
	for !m.Done() { // again while it's being written, or copied
		if send {
			l.cancel(m)
		} else {
			f.match.Withdraw(m, fabric.ErrCanceled)
		}
		runtime.Gosched()
	}
}

// Control implements fabric.Fabric.
func (f *Fabric) Control(peer int, payload []byte) error {
	switch {
	case peer < 0 || peer >= f.Size():
		return fmt.Errorf("unix: rank %d is not in a world of %d", peer, f.Size())
	case len(payload) > fabric.MaxControl:
		return fmt.Errorf("unix: control payload of %d bytes; the limit is %d", len(payload), fabric.MaxControl)
	}
	if !f.links[peer].control(payload) {
		return fabric.ErrClosed
	}
	return f.match.LostError(peer)
}

// Close implements fabric.Fabric. What is being written is finished, unless ctx ends before.
func (f *Fabric) Close(ctx context.Context) error {
	if f.closed.Swap(true) {
		return nil
	}
	for _, l := range f.links {
		l.end(true)
	}
	stop := context.AfterFunc(ctx, func() {
		for _, l := range f.links {
			l.out.SetWriteDeadline(time.Now())
		}
	})
	defer stop()
	f.finish()
	return nil
}

// Kill ends a rank as a crash does, without a goodbye.
func (f *Fabric) Kill() {
	if f.closed.Swap(true) {
		return
	}
	for _, l := range f.links {
		l.end(false)
		l.out.Close()
	}
	f.finish()
}

// finish waits for the links' goroutines.
func (f *Fabric) finish() {
	for _, l := range f.links {
		<-l.writeDone
		l.in.Close()
	}
	f.match.Close(fabric.ErrClosed)
	for _, l := range f.links {
		<-l.readDone
	}
}

// take returns a parcel for n bytes.
func (f *Fabric) take(n int) *parcel {
	f.mu.Lock()
	p := f.free
	if p != nil {
		f.free = p.next
	}
	f.mu.Unlock()
	if p == nil {
		p = &parcel{f: f}
		p.Via = p
	}
	if cap(p.data) < n {
		p.data = make([]byte, n)
	}
	p.data = p.data[:n]
	return p
}

// give takes it back.
func (f *Fabric) give(p *parcel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.next, f.free = f.free, p
}
