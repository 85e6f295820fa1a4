package myfabric

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// Fabric is one rank's end. It implements fabric.Fabric, of which transport.Base has Rank, Size and Recv.
type Fabric struct {
	transport.Base
	links []*link // by rank; nil for those that another fabric leads to

	mu   sync.Mutex
	free transport.Spares[parcel]
}

// start begins to read and write. A rank dialed those up to itself and accepted those from itself up.
func start(f *Fabric, accepted, dialed []net.Conn) *Fabric {
	f.links = make([]*link, len(dialed))
	for p := range f.links {
		l := &link{f: f, peer: p, out: dialed[p], in: accepted[p], sent: map[uint64]*fabric.Msg{},
			readDone: make(chan struct{}), writeDone: make(chan struct{})}
		if l.out == nil {
			l.out = l.in
		}
		if l.in == nil {
			l.in = l.out
		}
		if l.in == nil {
			continue
		}
		l.work.L = &l.mu
		f.links[p] = l
		go l.read()
		go l.write()
	}
	return f
}

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	var err error
	switch {
	case !f.Has(m.Peer) || f.links[m.Peer] == nil:
		err = f.NoRank(m.Peer)
	case m.Len > maxMessage:
		err = fmt.Errorf("unix: message of %d bytes; the limit is %d", m.Len, maxMessage)
	case f.Closed():
		err = fabric.ErrClosed
	default:
		err = f.Match.LostError(m.Peer)
	}
	if err == nil && !f.links[m.Peer].post(m) {
		err = fabric.ErrClosed
	}
	if err != nil {
		m.Complete(0, m.Peer, err)
	}
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
			f.Match.Withdraw(m, fabric.ErrCanceled)
		}
		runtime.Gosched()
	}
}

// Close implements fabric.Fabric. A write under way is finished, unless ctx ends before.
func (f *Fabric) Close(ctx context.Context) error {
	f.end(ctx, true)
	return nil
}

// Kill ends a rank as a crash does, without a goodbye.
func (f *Fabric) Kill() { f.end(context.Background(), false) }

func (f *Fabric) end(ctx context.Context, bye bool) {
	if !f.Shut() {
		return
	}
	links := slices.DeleteFunc(slices.Clone(f.links), func(l *link) bool { return l == nil })
	for _, l := range links {
		if l.end(bye); !bye {
			l.out.Close()
		}
	}
	stop := context.AfterFunc(ctx, func() {
		for _, l := range links {
			l.out.SetWriteDeadline(time.Now())
		}
	})
	defer stop()
	for _, l := range links {
		<-l.writeDone
		l.in.Close()
	}
	f.Match.Close(fabric.ErrClosed)
	for _, l := range links {
		<-l.readDone
	}
}

// take returns a parcel for n bytes.
func (f *Fabric) take(n int) *parcel {
	f.mu.Lock()
	p := f.free.Get()
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
	f.free.Put(p)
}
