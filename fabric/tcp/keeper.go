package tcp

import (
	"sync"
	"time"
)

// A keeper moves bytes over its connections when no goroutine waits that does so itself. It watches
// through a set of its own, in which a connection that has fired stays silent until it's armed
// again. The runtime's poller would wake a thread for every segment, even while a waiting goroutine
// reads the connection anyway.
//
// While goroutines drive, the keeper pauses, and looks now and then whether they still do.
type keeper struct {
	f    *Fabric
	set  watchSet
	call chan struct{} // ends a pause

	mu     sync.Mutex
	asleep bool    // waits for events: all pipes are armed
	loose  []*pipe // to be looked after before it sleeps
}

// How long a keeper leaves its connections to those that drive before it looks whether they still do: longer each time.
// Every look wakes a thread, which takes a core from this rank or from another one of the host.
const (
	shortPause = time.Millisecond
	longPause  = 8 * time.Millisecond
)

func newKeeper(f *Fabric) (*keeper, error) {
	k := &keeper{f: f, call: make(chan struct{}, 1)}
	if err := k.set.open(); err != nil {
		return nil, err
	}
	return k, nil
}

// close ends the keeper's goroutine.
func (k *keeper) close() {
	k.set.close()
	k.rouse()
}

// rouse ends a pause. It costs little if there's none.
func (k *keeper) rouse() {
	select {
	case k.call <- struct{}{}:
	default:
	}
}

// run is the keeper's goroutine.
func (k *keeper) run() {
	tick := time.NewTimer(shortPause)
	defer tick.Stop()
	var seen uint64
	for {
		for pause := shortPause; k.f.driven(&seen); pause = min(2*pause, longPause) {
			tick.Reset(pause)
			select {
			case <-k.call:
				seen = k.f.drives.Load()
			case <-tick.C:
			}
			k.mute()
		}
		k.tidy()
		if k.set.wait() != nil {
			return
		}
		k.fire()
	}
}

// fire takes the pipes that have fired on the list.
func (k *keeper) fire() {
	k.mu.Lock()
	k.asleep = false
	for i := range k.set.fired {
		rank, index := k.set.at(i)
		k.loosen(k.f.peers[rank].pipes[index])
	}
	k.mu.Unlock()
}

// mute takes the connections that have fired since the keeper paused off the set. Else each further segment of an
// armed connection would wake the runtime's poller, which watches the set, without need.
func (k *keeper) mute() {
	k.set.look()
	k.fire()
}

// tidy moves what can be moved over all loose pipes, and arms them.
func (k *keeper) tidy() {
	k.mu.Lock()
	for len(k.loose) > 0 {
		last := len(k.loose) - 1
		pp := k.loose[last]
		k.loose[last] = nil
		k.loose = k.loose[:last]
		k.mu.Unlock()
		pp.read(backlog)
		pp.write(backlog)
		pp.p.mu.Lock()
		k.mu.Lock()
		pp.loose = false // from here on others mind it again
		pp.watch()
		pp.p.mu.Unlock()
	}
	k.asleep = true
	k.mu.Unlock()
}

// loosen puts a pipe on the list of those to look after. The caller holds the keeper's lock.
func (k *keeper) loosen(pp *pipe) {
	if !pp.loose {
		pp.loose = true
		k.loose = append(k.loose, pp)
	}
}

// mind sees to it that the keeper looks after a pipe on which something was left
// undone. The caller holds the peer's lock.
func (k *keeper) mind(pp *pipe) {
	k.mu.Lock()
	asleep := k.asleep
	if !asleep {
		k.loosen(pp)
	}
	k.mu.Unlock()
	if asleep {
		pp.watch()
	}
}

// help writes what was left undone on some loose pipes, for a goroutine that drives.
func (k *keeper) help() (moved bool) {
	var some [8]*pipe
	k.mu.Lock()
	n := copy(some[:], k.loose)
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
	if err := pp.keeper.set.arm(pp, !pp.blocked, pp.pending()); err != nil {
		// Out of memory or of watches: data that comes would go unnoticed.
		go pp.p.fail(lost(pp.index, err))
	}
}
