package gpu

import "sync"

// deferredFrees holds resources that are given back when the work that may use them is done. A call of the library
// before that would wait for the whole GPU.
type deferredFrees struct {
	mu   sync.Mutex
	list []*deferredFree
}

type deferredFree struct {
	until   []*ticket
	gpu     *gpu
	bytes   int // of the GPU's memory
	release func()
}

// add calls release when all work that streams of some GPUs have at the moment is done; at once if there's none.
func (m *deferredFrees) add(gpus []*gpu, bytes int, release func()) {
	l := &deferredFree{bytes: bytes, release: release}
	for _, b := range gpus {
		l.gpu = b
		l.until = append(l.until, b.pending()...)
	}
	if len(l.until) == 0 {
		release()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, l)
}

// reap releases the resources whose work is done, and returns how many bytes of a GPU's memory remain.
func (m *deferredFrees) reap(b *gpu) (bytes int) {
	m.mu.Lock()
	var now []*deferredFree
	m.list = keep(m.list, func(l *deferredFree) bool {
		l.until = keep(l.until, func(t *ticket) bool { return !t.over() })
		if len(l.until) == 0 {
			now = append(now, l)
			return false
		}
		if l.gpu == b {
			bytes += l.bytes
		}
		return true
	})
	m.mu.Unlock()
	for _, l := range now {
		l.release()
	}
	return bytes
}
