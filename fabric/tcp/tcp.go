package tcp

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/secure"
)

// Fabric is one rank's links over TCP.
type Fabric struct {
	transport.Base
	rank, size int
	o          options
	timeout    time.Duration // of a connect
	security   secure.Policy
	key        secure.Secret // of this fabric's links
	mine       card
	cards      [][]byte // of the ranks, checked; nil for those that are reached otherwise
	peers      transport.Peers[peer]
	buffers    transport.Buffers
	listeners  []net.Listener
	limiter    secure.AcceptLimiter // of connections that haven't proved that they belong here
	spare      sys.SpareFD

	pollers    []*poller
	cores      int           // that the ranks of this host have together
	spinFirst  bool          // a wait looks again and again before it sleeps: every rank has a core
	spareCores bool          // there are more cores, so pollers help the goroutines that wait
	spinning   atomic.Int32  // goroutines in Wait that look
	spins      atomic.Uint64 // how often one has begun to
	procs      int32         // that this process has

	ticks   atomic.Int64    // of the heartbeat
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	links   sync.WaitGroup // connections
	others  sync.WaitGroup // goroutines that connect, accept and beat
	polling sync.WaitGroup // the pollers' goroutines
	tunnels tunnels
	refused sync.Once // a certificate, which is mentioned
	once    sync.Once // Close

	connectedAll atomic.Bool // Connect has been called for all peers
}

var (
	_ fabric.Messenger = (*Fabric)(nil)
	_ fabric.Connector = (*Fabric)(nil)
)

const (
	selfBuffer   = 1024             // messages to oneself up to this size don't wait
	dialTimeout  = 10 * time.Second // for one address
	helloLimit   = 10 * time.Second // for a hello, or the answer to it
	closeGrace   = 5 * time.Second  // for peers to take what is under way when this rank closes
	controlGrace = 2 * time.Second  // of it, for links that come up only to carry a control payload
	cancelGrace  = 2 * time.Second  // for the rest of a message that is withdrawn while it's moving
)

func newFabric(c fabric.Config) *Fabric {
	f := &Fabric{rank: c.Rank, size: c.Size, timeout: c.Timeout, security: c.Security, cores: c.HostCores(),
		o: defaults()}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

func (f *Fabric) start() {
	for _, l := range f.listeners {
		f.others.Go(func() { f.accept(l) })
	}
	for _, k := range f.pollers {
		f.polling.Go(k.run)
	}
	if f.o.heartbeat > 0 && f.size > 1 {
		f.others.Go(f.beat)
	}
}

// spinTime is how long a waiting goroutine polls before it sleeps. It's longer than the slice (3 ms) that Linux
// gives another process which takes the peer's core meanwhile. A rank that sleeps before the peer is back leaves
// that process its own core, too, and both ranks end up waking each other.
const spinTime = 4 * time.Millisecond

// waitersPoll reports whether connections are best left to the goroutines that wait: one waits, or has waited since the
// last call with the same seen. A rank that runs one operation after the other is at times between two of them.
func (f *Fabric) waitersPoll(seen *uint64) bool {
	last := *seen
	*seen = f.spins.Load()
	return !f.spareCores && (f.spinning.Load() > 0 || *seen != last)
}

// pollPeers moves what can be moved: for one peer, or for all.
func (f *Fabric) pollPeers(peer int, all bool) (moved bool) {
	if !all && peer >= 0 {
		if p := f.peers.Made(peer); p != nil {
			moved = p.poll()
		}
		for _, k := range f.pollers {
			moved = k.writeReady() || moved
		}
		return moved
	}
	for _, p := range f.peers.All() {
		moved = p.poll() || moved
	}
	return moved
}

// spinningInProcess counts the spinning goroutines of this process, for all its ranks.
var spinningInProcess atomic.Int32

// spin is the first part of a wait: as long as bytes come, or may be about to, this goroutine
// moves them itself.
func (f *Fabric) spin(m *fabric.Msg, w *fabric.Waiter) error {
	f.spinning.Add(1)
	f.spins.Add(1)
	spinningInProcess.Add(1)
	defer spinningInProcess.Add(-1)
	defer f.spinning.Add(-1)
	var since time.Time // when the looks without success began; zero: something came just now
	for i := 0; ; i++ {
		if f.pollPeers(m.Peer, i%8 == 7) {
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
		// Else there's a processor for others, and yielding would wake a thread to look for them.
		if i%8 == 7 && spinningInProcess.Load() >= f.procs {
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

// Send implements fabric.Fabric.
func (f *Fabric) Send(m *fabric.Msg) {
	m.PrivP = f // marks a send, for Cancel
	switch {
	case m.Peer == f.rank:
		f.SendTo(f.Match, m)
	case f.Closed():
		m.Complete(0, m.Peer, fabric.ErrClosed)
	default:
		if p := f.peers.To(m.Peer); p != nil {
			p.send(m)
		} else {
			m.Complete(0, m.Peer, f.NoRank(m.Peer))
		}
	}
}

// reaches reports whether there's a link, or may be one, to a peer.
func (f *Fabric) reaches(peer int) bool { return f.Has(peer) && peer != f.rank && f.cards[peer] != nil }

// Wait implements fabric.Fabric.
func (f *Fabric) Wait(m *fabric.Msg, w *fabric.Waiter) error {
	if m.Done() {
		return m.Err
	}
	if f.spinFirst {
		if err := f.spin(m, w); err != nil {
			return err
		}
		if m.Done() {
			return m.Err
		}
	}
	f.Connect(m.Peer)
	f.wakePollers()
	if err := w.Block(m.Done); err != nil {
		return err
	}
	return m.Err
}

// Connect implements fabric.Connector.
func (f *Fabric) Connect(peer int) {
	if peer != fabric.AnySource {
		f.connect(peer)
	} else if !f.connectedAll.Swap(true) {
		for r := range f.size {
			f.connect(r)
		}
	}
}

// connect begins to connect a peer, if this fabric reaches it.
func (f *Fabric) connect(peer int) {
	if p := f.peers.To(peer); p != nil {
		p.connect()
	}
}

// wakePollers has the pollers serve their connections now.
func (f *Fabric) wakePollers() {
	for _, k := range f.pollers {
		k.wake()
	}
}

// Cancel implements fabric.Fabric. A message whose bytes are moving and don't
// come to an end costs the link.
func (f *Fabric) Cancel(m *fabric.Msg) {
	if m.Done() {
		return
	}
	switch {
	case m.PrivP == nil:
		f.Match.Withdraw(m, fabric.ErrCanceled)
	case m.Peer == f.rank:
		f.Own.Cancel(f.Match, m, fabric.ErrCanceled)
	default:
		f.peers.To(m.Peer).cancel(m)
	}
	f.wakePollers()
	if !transport.AwaitDone(m, cancelGrace) {
		for _, p := range f.peers.All() {
			if p.carries(m) {
				p.fail(fmt.Errorf("a message of %d bytes was withdrawn on its way, and the link stood still for %v", m.Len,
					cancelGrace))
			}
		}
		transport.AwaitDone(m, 0)
	}
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
	}
	if p := f.peers.To(peer); p != nil {
		return p.control(payload)
	}
	return f.NoRank(peer)
}

// Close implements fabric.Fabric. It waits until the peers have read what was
// sent to them, for as long as ctx allows and closeGrace at most.
func (f *Fabric) Close(ctx context.Context) error {
	f.once.Do(func() { f.leave(ctx) })
	return nil
}

func (f *Fabric) leave(ctx context.Context) {
	f.Shut()
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	f.awaitControls(ctx)
	f.closeListeners()
	f.Drop()
	for _, p := range f.peers.Close((*peer).goodbye) {
		p.goodbye()
	}
	f.stop() // now that no peer seems to fail by it
	f.wakePollers()
	ended := make(chan struct{})
	go func() {
		f.others.Wait() // those that connect; they may bring a last pipe up
		f.links.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		for _, p := range f.peers.All() {
			p.hangUp()
		}
		<-ended
	}
	f.free()
}

// free gives back what no connection uses any more.
func (f *Fabric) free() {
	f.tunnels.close()
	f.closePollers()
	f.spare.Close()
}

// awaitControls waits for connections over which control payloads of this rank are to go. The last one is often the
// reason why this rank leaves, and the first message to that peer. The listeners must be open meanwhile, for a peer
// that connects, too.
func (f *Fabric) awaitControls(ctx context.Context) {
	for start := time.Now(); time.Since(start) < controlGrace && ctx.Err() == nil; time.Sleep(200 * time.Microsecond) {
		if !slices.ContainsFunc(f.peers.All(), (*peer).controlPending) {
			return
		}
	}
}

func (f *Fabric) closePollers() {
	for _, k := range f.pollers {
		k.close()
	}
	f.polling.Wait()
}

func (f *Fabric) closeListeners() {
	for _, l := range f.listeners {
		l.Close()
	}
}

// Kill drops every connection without a goodbye, as a crash would: for tests.
func (f *Fabric) Kill() {
	f.once.Do(func() {
		f.Shut()
		f.closeListeners()
		for _, p := range f.peers.Close((*peer).goodbye) {
			p.end(fabric.ErrClosed)
		}
		f.stop()
		f.Drop()
		f.others.Wait()
		f.links.Wait()
		f.free()
	})
}
