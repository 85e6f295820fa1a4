package fabric

import (
	"slices"
	"sync"
)

// GoroutineWaiters is where the members of a Space sleep if they are goroutines of one process. A futex would
// hold a thread for each, and look every few milliseconds. Here a sleeper is only woken by a member, an abort,
// or its deadline. So such worlds can run in the virtual time of testing/synctest, which goes on when all
// goroutines wait. The zero GoroutineWaiters is ready.
type GoroutineWaiters struct {
	mu      sync.Mutex
	waiters []*Waiter
}

// sleep blocks until a member calls wake or w may have a reason to give up, unless needed no longer holds.
func (l *GoroutineWaiters) sleep(w *Waiter, needed func() bool) {
	w.parked.Store(1)
	l.mu.Lock()
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	if needed() {
		w.sleep(nil)
	}
	l.mu.Lock()
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	l.mu.Unlock()
	w.parked.Store(0)
}

// wake has all sleepers look again.
func (l *GoroutineWaiters) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		w.Wake()
	}
}
