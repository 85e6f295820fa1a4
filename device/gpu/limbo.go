package gpu

import "sync"

// limbo is what is given back when the work that may use it is done: the library, asked before, would wait for the
// whole GPU.
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

// leave calls release when all that streams of some boards have to do at the moment is done, at once if that is
// nothing.
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

// reap releases what can be by now, and returns how many bytes of a board's memory remain.
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
