package base

import (
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/internal/outcome"
)

// Frees holds resources of devices that are given back when the work that may use them is done. D is a device, and T a
// point in the work that it has been given. The zero value is ready; its methods may be called at the same time. Only
// calls for a device give back what is of that device: its work may be a collective that waits for another one's.
type Frees[D interface {
	comparable
	Pending() []T // for all that the device has to do at the moment
	Held() bool   // giving something back would wait for a function of the host, for which the caller may be needed
}, T interface{ Over() bool }] struct {
	mu   sync.Mutex
	list []*free[D, T]
}

type free[D, T any] struct {
	of      D
	until   []T
	bytes   int
	release func()
}

// Add gives back a resource of a device, with so many bytes of its memory, when all work that some devices have at the
// moment is done; at once if there's none.
func (m *Frees[D, T]) Add(of D, devices []D, bytes int, release func()) {
	if until := pending(devices); len(until) > 0 {
		m.Behind(of, until, bytes, release)
	} else {
		release()
	}
}

// Later is Add, but leaves the release to [Frees.Reap] if there's no work, too.
func (m *Frees[D, T]) Later(of D, devices []D, release func()) {
	m.Behind(of, pending(devices), 0, release)
}

// Behind gives back a resource when some work is done, by [Frees.Reap].
func (m *Frees[D, T]) Behind(of D, until []T, bytes int, release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, &free[D, T]{of, until, bytes, release})
}

func pending[D interface{ Pending() []T }, T any](devices []D) (all []T) {
	for _, b := range devices {
		all = append(all, b.Pending()...)
	}
	return all
}

// Reap releases a device's resources whose work is done, as long as it isn't held, and returns how many bytes of its
// memory remain.
func (m *Frees[D, T]) Reap(of D) (bytes int) {
	held := of.Held()
	m.mu.Lock()
	var now []*free[D, T]
	m.list = outcome.Keep(m.list, func(l *free[D, T]) bool {
		if l.of != of {
			return true
		}
		l.until = outcome.Keep(l.until, func(t T) bool { return !t.Over() })
		if len(l.until) == 0 && !held {
			now = append(now, l)
			return false
		}
		bytes += l.bytes
		return true
	})
	m.mu.Unlock()
	for i, l := range now {
		if of.Held() { // since then
			m.mu.Lock()
			m.list = append(m.list, now[i:]...)
			m.mu.Unlock()
			for _, l := range now[i:] {
				bytes += l.bytes
			}
			break
		}
		l.release()
	}
	return bytes
}

// patience is how long a wait for memory that was freed under work goes on while none comes back.
const patience = 30 * time.Second

// Reclaim waits for what a device's memory was freed under so far, as [driver.Reclaimer] has it.
func (m *Frees[D, T]) Reclaim(of D) {
	m.mu.Lock()
	var waited []*free[D, T]
	for _, l := range m.list {
		if l.of == of && l.bytes > 0 {
			waited = append(waited, l)
		}
	}
	m.mu.Unlock()
	for left, since := len(waited), time.Now(); left > 0 && time.Since(since) < patience; {
		m.Reap(of)
		m.mu.Lock()
		waited = slices.DeleteFunc(waited, func(l *free[D, T]) bool { return !slices.Contains(m.list, l) })
		m.mu.Unlock()
		if n := len(waited); n < left {
			left, since = n, time.Now()
			continue
		}
		time.Sleep(time.Millisecond)
	}
}
