package fabric

import (
	"slices"
	"sync"
)

// Lot is where the members of a Space sleep that are goroutines of one process. A futex would hold
// a thread for each, and look every few milliseconds; here who sleeps is woken by what it waits
// for, an abort, or its deadline, and nothing else. That also lets such worlds run in the
// virtual time of testing/synctest, which goes on when all goroutines wait. The zero Lot is ready.
type Lot struct {
	mu      sync.Mutex
	waiters []*Waiter
}

// sleep blocks until a member wakes the lot or w may have a reason to give up, unless needed no longer holds.
func (l *Lot) sleep(w *Waiter, needed func() bool) {
	w.parked.Store(1)
	l.mu.Lock()
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	if needed() {
		w.doze(nil)
	}
	l.mu.Lock()
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	l.mu.Unlock()
	w.parked.Store(0)
}

// wake has all sleepers look again.
func (l *Lot) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		w.Wake()
	}
}
