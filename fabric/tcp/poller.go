package tcp

import (
	"sync"
	"time"
)

// A poller moves bytes over its connections when no goroutine waits that does so itself. It watches
// through a set of its own, in which a connection that has fired stays silent until it's armed
// again. The runtime's poller would wake a thread for every segment, even while a waiting goroutine
// reads the connection anyway.
//
// While goroutines spin in waits, the poller pauses, and looks now and then whether they still do.
type poller struct {
	f      *Fabric
	set    watchSet
	wakeup chan struct{} // ends a pause

	mu     sync.Mutex
	asleep bool    // waits for events: all pipes are armed
	ready  []*pipe // to be served before it sleeps
}

// How long a poller leaves its connections to spinning goroutines before it looks whether they still spin: longer each
// time. Every look wakes a thread, which takes a core from this rank or from another one of the host.
const (
	shortPause = time.Millisecond
	longPause  = 8 * time.Millisecond
)

func newPoller(f *Fabric) (*poller, error) {
	k := &poller{f: f, wakeup: make(chan struct{}, 1)}
	if err := k.set.open(); err != nil {
		return nil, err
	}
	return k, nil
}

// close ends the poller's goroutine.
func (k *poller) close() {
	k.set.close()
	k.wake()
}

// wake ends a pause. It costs little if there's none.
func (k *poller) wake() {
	select {
	case k.wakeup <- struct{}{}:
	default:
	}
}

// run is the poller's goroutine.
func (k *poller) run() {
	tick := time.NewTimer(shortPause)
	defer tick.Stop()
	var seen uint64
	for {
		for pause := shortPause; k.f.waitersPoll(&seen); pause = min(2*pause, longPause) {
			tick.Reset(pause)
			select {
			case <-k.wakeup:
				seen = k.f.spins.Load()
			case <-tick.C:
			}
			k.takeFired()
		}
		k.serveReady()
		if k.set.wait() != nil {
			return
		}
		k.collectFired()
	}
}

// collectFired puts the pipes that have fired on the ready list.
func (k *poller) collectFired() {
	k.mu.Lock()
	k.asleep = false
	for i := range k.set.fired {
		rank, index := k.set.at(i)
		k.addReady(k.f.peers.Made(rank).pipes[index])
	}
	k.mu.Unlock()
}

// takeFired takes the connections that have fired since the poller paused off the set. Else each further segment of an
// armed connection would wake the runtime's poller, which watches the set, without need.
func (k *poller) takeFired() {
	k.set.look()
	k.collectFired()
}

// serveReady moves what can be moved over all pipes of the ready list, and arms them.
func (k *poller) serveReady() {
	k.mu.Lock()
	for len(k.ready) > 0 {
		last := len(k.ready) - 1
		pp := k.ready[last]
		k.ready[last] = nil
		k.ready = k.ready[:last]
		k.mu.Unlock()
		pp.read(backlog)
		pp.write(backlog)
		pp.p.mu.Lock()
		k.mu.Lock()
		pp.listed = false // from here on others may requeue it
		pp.watch()
		pp.p.mu.Unlock()
	}
	k.asleep = true
	k.mu.Unlock()
}

// addReady puts a pipe on the ready list. The caller holds the poller's lock.
func (k *poller) addReady(pp *pipe) {
	if !pp.listed {
		pp.listed = true
		k.ready = append(k.ready, pp)
	}
}

// requeue has the poller serve a pipe on which something was left undone. The caller holds the
// peer's lock.
func (k *poller) requeue(pp *pipe) {
	k.mu.Lock()
	asleep := k.asleep
	if !asleep {
		k.addReady(pp)
	}
	k.mu.Unlock()
	if asleep {
		pp.watch()
	}
}

// writeReady writes what was left undone on some pipes of the ready list, for a goroutine that
// spins.
func (k *poller) writeReady() (moved bool) {
	var some [8]*pipe
	k.mu.Lock()
	n := copy(some[:], k.ready)
	k.mu.Unlock()
	for _, pp := range some[:n] {
		moved = pp.write(portion) || moved
	}
	return moved
}

// watch arms the pipe for what it waits for. The caller holds the lock.
func (pp *pipe) watch() {
	if pp.fd < 0 || pp.state != up || pp.blocked && !pp.pending() {
		return // what unblocks a pipe sees to it that it's armed
	}
	if err := pp.poller.set.arm(pp, !pp.blocked, pp.pending()); err != nil {
		// Out of memory or of watches: data that comes would go unnoticed.
		go pp.p.fail(lost(pp.index, err))
	}
}
