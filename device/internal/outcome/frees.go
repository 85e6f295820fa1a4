package outcome

import "sync"

// Frees holds resources of devices that are given back when the work that may use them is done. D is a device, and T
// stands for work that it has been given. The zero value is ready; its methods may be called at the same time.
type Frees[D comparable, T any] struct {
	mu   sync.Mutex
	list []*free[D, T]
}

type free[D comparable, T any] struct {
	of      D
	until   []T
	bytes   int
	release func()
}

// Add gives back a resource, with so many bytes of a device's memory, when some work is done; at once if there's none.
func (m *Frees[D, T]) Add(of D, until []T, bytes int, release func()) {
	if len(until) == 0 {
		release()
		return
	}
	m.Later(of, until, bytes, release)
}

// Later is Add, but leaves the release to [Frees.Reap] if there's no work, too.
func (m *Frees[D, T]) Later(of D, until []T, bytes int, release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, &free[D, T]{of, until, bytes, release})
}

// Reap releases a device's resources whose work is done, which over reports, and returns how many bytes of its memory
// remain.
func (m *Frees[D, T]) Reap(of D, over func(T) bool) (bytes int) {
	m.mu.Lock()
	var now []*free[D, T]
	m.list = Keep(m.list, func(l *free[D, T]) bool {
		if l.of != of {
			return true
		}
		l.until = Keep(l.until, func(t T) bool { return !over(t) })
		if len(l.until) == 0 {
			now = append(now, l)
			return false
		}
		bytes += l.bytes
		return true
	})
	m.mu.Unlock()
	for _, l := range now {
		l.release()
	}
	return bytes
}
