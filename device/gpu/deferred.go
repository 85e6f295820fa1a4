package gpu

import (
	"sync"

	"github.com/chorus-comms/chorus/device/internal/outcome"
)

// deferredFrees holds resources that are given back when the work that may use them is done. A call of the library
// before that would wait for the whole GPU, and one after it may still wait for the GPU's later work. So only threads
// that use a GPU give back what is of that GPU: its work may be a collective that waits for another GPU's.
type deferredFrees struct {
	mu   sync.Mutex
	list []*deferredFree
}

type deferredFree struct {
	until   []*ticket
	gpu     *gpu // whose resource it is
	bytes   int  // of the GPU's memory
	release func()
}

// add gives back a resource of GPU of when all work that streams of some GPUs have at the moment is done; at once if
// there's none.
func (m *deferredFrees) add(of *gpu, gpus []*gpu, bytes int, release func()) {
	l := newDeferredFree(of, gpus, release)
	if l.bytes = bytes; len(l.until) == 0 {
		release()
		return
	}
	m.push(l)
}

// later is add, but leaves all to reap.
func (m *deferredFrees) later(of *gpu, gpus []*gpu, release func()) {
	m.push(newDeferredFree(of, gpus, release))
}

func (m *deferredFrees) push(l *deferredFree) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, l)
}

func newDeferredFree(of *gpu, gpus []*gpu, release func()) *deferredFree {
	l := &deferredFree{gpu: of, release: release}
	for _, b := range gpus {
		l.until = append(l.until, b.pending()...)
	}
	return l
}

// reap releases a GPU's resources whose work is done, and returns how many bytes of its memory remain.
func (m *deferredFrees) reap(b *gpu) (bytes int) {
	m.mu.Lock()
	var now []*deferredFree
	m.list = outcome.Keep(m.list, func(l *deferredFree) bool {
		if l.gpu != b {
			return true
		}
		l.until = outcome.Keep(l.until, func(t *ticket) bool { return !t.over() })
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
