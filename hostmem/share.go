package hostmem

import (
	"fmt"
	"sync"
)

// ByID returns the open segment of this process with the ID, or nil. It takes no lock and does not allocate. The caller
// answers for the segment's staying open.
func ByID(id uint64) *Segment {
	for _, s := range index.snapshot() {
		if s.id == id {
			return s
		}
	}
	return nil
}

// Share calls give with the descriptor of the open segment with the ID, to be passed to a peer but neither kept nor
// closed, and with the size and colour that [Map] wants. A concurrent Close of the segment waits for give, which must
// not block, nor call this package. It needs no descriptor more than there are.
func Share(id uint64, give func(fd, size, color int) error) error {
	index.mu.Lock() // Close removes the segment under this lock before it closes the descriptor
	defer index.mu.Unlock()
	s := ByID(id)
	if s == nil {
		return fmt.Errorf("hostmem: no segment has ID %d", id)
	}
	return give(s.fd, s.size, s.color)
}

var closers = struct {
	sync.Mutex
	next  int
	funcs map[int]func(id uint64)
}{funcs: map[int]func(uint64){}}

// OnClose calls f with the ID of every segment that is closed from now on, until stop is called, so that peers can
// unmap it. The function must not block, and must not allocate from, free to or share segments of this package.
func OnClose(f func(id uint64)) (stop func()) {
	closers.Lock()
	defer closers.Unlock()
	k := closers.next
	closers.next++
	closers.funcs[k] = f
	return func() {
		closers.Lock()
		defer closers.Unlock()
		delete(closers.funcs, k)
	}
}

// announceClose tells the listeners of [OnClose].
func announceClose(id uint64) {
	closers.Lock()
	defer closers.Unlock()
	for _, f := range closers.funcs {
		f(id)
	}
}
