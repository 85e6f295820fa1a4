package ucx

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// Fabric is one rank's links over UCX.
type Fabric struct {
	transport.Base
	rank, size int
	o          options
	timeout    time.Duration
	peers      []*peer // nil for this rank itself, and for those that are reached otherwise
	buffers    transport.Buffers

	// turn is held by the goroutine that makes progress, and delivers what has come. mu, which may be taken with it,
	// guards the worker and what follows.
	turn     sync.Mutex
	mu       sync.Mutex
	w        *worker
	ring     ring
	sends    []transfer
	receives []transfer
	ending   []*peer // whose endpoints are being closed
	lost     [][]byte
	done     []outcome
	ended    []outcome // those that are being completed; guarded by turn
	reserve  reserve   // of descriptors
	unsure   bool      // requests are to be looked at, whether or not anything has moved
	gone     bool      // the worker is freed
	early    bool      // ranks wait for lower ones to connect
	late     *time.Timer
	// connectedAll: Connect has been called for all peers.
	connectedAll bool
	draw         *rand.ChaCha8
	reports      atomic.Bool // an endpoint has failed

	spinFirst bool // a wait looks again and again before it sleeps: every rank has a core
	spinning  atomic.Int32
	spins     atomic.Uint64
	watcher   watcher
	ticks     atomic.Int64 // of the heartbeat
	ctx       context.Context
	stop      context.CancelFunc
	tasks     sync.WaitGroup
	once      sync.Once // Close
}

var (
	_ fabric.Messenger = (*Fabric)(nil)
	_ fabric.Connector = (*Fabric)(nil)
)

const (
	selfBuffer  = 1024                 // messages to oneself up to this size don't wait
	closeGrace  = 5 * time.Second      // for peers to take what is under way when this rank closes
	cancelGrace = 2 * time.Second      // for the rest of a message that is withdrawn while it's moving
	spinTime    = 4 * time.Millisecond // how long a waiting goroutine polls before it sleeps, as in package tcp
)

// start begins to receive.
func (f *Fabric) start() error {
	f.ctx, f.stop = context.WithCancel(context.Background())
	if err := f.openRing(); err != nil {
		return fmt.Errorf("ucx: %w", err)
	}
	if err := f.watcher.open(f.w.eventFD); err != nil {
		return fmt.Errorf("ucx: watching the event descriptor: %w", err)
	}
	f.mu.Lock()
	f.reserve.keep()
	f.connectFirst()
	f.mu.Unlock()
	f.tasks.Go(f.watch)
	if f.o.heartbeat > 0 && f.size > 1 {
		f.tasks.Go(f.beat)
	}
	return nil
}

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	m.PrivP = f // marks a send, for Cancel
	switch {
	case m.Peer == f.rank:
		f.SendTo(f.Match, m)
	case !f.reaches(m.Peer):
		m.Complete(0, m.Peer, f.NoRank(m.Peer))
	case f.Closed():
		m.Complete(0, m.Peer, fabric.ErrClosed)
	default:
		f.peers[m.Peer].send(m)
	}
}

// reaches reports whether there's a link, or may be one, to a peer.
func (f *Fabric) reaches(peer int) bool { return f.Has(peer) && f.peers[peer] != nil }

// Wait implements fabric.Fabric.
func (f *Fabric) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	if m.Done() {
		return m.Err
	}
	f.Connect(m.Peer)
	if f.spinFirst {
		if err := f.spin(m, w); err != nil {
			return err
		}
		if m.Done() {
			return m.Err
		}
	}
	f.watcher.wake()
	if err := w.Block(m.Done); err != nil {
		return err
	}
	return m.Err
}

// Connect implements fabric.Connector.
func (f *Fabric) Connect(peer int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.reaches(peer):
		f.peers[peer].reach()
	case peer == fabric.AnySource && !f.connectedAll:
		f.connectedAll = true
		for _, p := range f.peers {
			if p != nil {
				p.reach()
			}
		}
	}
}

// reach has the peer connect, too. The caller holds the lock.
func (p *peer) reach() {
	if p.endpoint == 0 && p.err == nil {
		p.note(kindPing, 0, 0)
	}
}

// spin is the first part of a wait: as long as something comes, or may be about to, this goroutine makes progress.
func (f *Fabric) spin(m *fabric.Msg, w *fabric.Waiter) error {
	f.spinning.Add(1)
	f.spins.Add(1)
	defer f.spinning.Add(-1)
	var since time.Time // when the looks without success began; zero: something came just now
	for i := 0; ; i++ {
		if f.progress() {
			since = time.Time{}
		}
		if m.Done() {
			return nil
		}
		if i%64 == 63 || w.Abort.Raised() {
			if err := w.Check(); err != nil {
				return err
			}
		}
		if i%64 == 63 {
			runtime.Gosched()
		}
		switch {
		case i%16 < 15:
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > spinTime/time.Duration(f.spinning.Load()): // which all that wait share
			return nil
		}
	}
}

// Cancel implements fabric.Fabric. A message whose bytes are moving and don't come to an end costs the link.
func (f *Fabric) Cancel(m *fabric.Msg) {
	if m.Done() {
		return
	}
	var p *peer
	switch {
	case m.PrivP == nil:
		if f.Match.Withdraw(m, fabric.ErrCanceled) {
			return
		}
	case m.Peer == f.rank:
		f.Own.Cancel(f.Match, m, fabric.ErrCanceled)
	default:
		p = f.peers[m.Peer]
		if p.withdraw(m) {
			return
		}
	}
	for start := time.Now(); !m.Done(); {
		if !f.progress() {
			runtime.Gosched()
			f.watcher.wake()
		}
		since := time.Since(start)
		if since > time.Millisecond {
			time.Sleep(50 * time.Microsecond)
		}
		if since > cancelGrace {
			start = time.Now()
			if p := f.carrier(m); p != nil {
				f.turn.Lock()
				p.fail(fmt.Errorf("a message of %d bytes was withdrawn on its way, and the link stood still for %v", m.Len,
					cancelGrace))
				f.turn.Unlock()
			}
		}
	}
}

// withdraw completes a send whose bytes UCX doesn't have, and reports whether that's the case.
func (p *peer) withdraw(m *fabric.Msg) bool {
	f := p.f
	f.mu.Lock()
	for _, o := range p.out {
		if o.m == m && !o.moving {
			p.drop(o)
			p.note(kindRetract, o.id, 0)
			f.mu.Unlock()
			m.Complete(0, m.Peer, fabric.ErrCanceled)
			return true
		}
	}
	f.mu.Unlock()
	return false
}

// carrier returns the peer with which a message is under way.
func (f *Fabric) carrier(m *fabric.Msg) *peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.receives {
		if t.m == m {
			return t.p
		}
	}
	for _, t := range f.sends {
		if t.out != nil && t.out.m == m {
			return t.p
		}
	}
	return nil
}

// Control implements fabric.Messenger.
func (f *Fabric) Control(peer int, payload []byte) error {
	err := f.Addressed(peer, payload)
	switch {
	case err != nil:
		return err
	case peer == f.rank:
		f.Hand(f.rank, payload)
		return nil
	case !f.reaches(peer):
		return f.NoRank(peer)
	}
	p := f.peers[peer]
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if f.gone {
		return fabric.ErrClosed
	}
	p.post(&header{kind: kindControl, length: uint64(len(payload))}, payload)
	return nil
}
