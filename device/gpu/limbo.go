package gpu

import "sync"

// deferredFrees holds resources that are given back when the work that may use them is done. A call of the library
// before that would wait for the whole GPU.
type limbo struct {
	mu   sync.Mutex
	list []*leaving
}

type leaving struct {
	until   []*ticket
	board   *board
	bytes   int // of the board's memory
	release func()
}

// leave calls release when all work that streams of some GPUs have at the moment is done; at once if there's none.
func (m *limbo) leave(boards []*board, bytes int, release func()) {
	l := &leaving{bytes: bytes, release: release}
	for _, b := range boards {
		l.board = b
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
func (m *limbo) reap(b *board) (bytes int) {
	m.mu.Lock()
	var now []*leaving
	m.list = keep(m.list, func(l *leaving) bool {
		l.until = keep(l.until, func(t *ticket) bool { return !t.over() })
		if len(l.until) == 0 {
			now = append(now, l)
			return false
		}
		if l.board == b {
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
