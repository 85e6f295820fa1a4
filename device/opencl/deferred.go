package opencl

import (
	"sync"

	"github.com/chorus-comms/chorus/device/internal/outcome"
)

// deferredFrees holds resources that are given back when the work that may use them is done.
type deferredFrees struct {
	mu   sync.Mutex
	list []*deferredFree
}

type deferredFree struct {
	until   []*ticket
	dev     *dev // whose resource it is
	bytes   int  // of the device's memory
	release func()
}

// add gives back a resource of a device when all work that the devices of its context have at the moment is done; at
// once if there's none.
func (m *deferredFrees) add(of *dev, bytes int, release func()) {
	l := &deferredFree{dev: of, bytes: bytes, release: release}
	for _, b := range of.space.devs {
		l.until = append(l.until, b.pending("release")...)
	}
	if len(l.until) == 0 {
		release()
		return
	}
	m.push(l)
}

func (m *deferredFrees) push(l *deferredFree) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, l)
}

// reap releases a device's resources whose work is done, and returns how many bytes of its memory remain.
func (m *deferredFrees) reap(b *dev) (bytes int) {
	m.mu.Lock()
	var now []*deferredFree
	m.list = outcome.Keep(m.list, func(l *deferredFree) bool {
		if l.dev != b {
			return true
		}
		l.until = outcome.Keep(l.until, func(t *ticket) bool { return !t.passed() })
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
