package members

import (
	"maps"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// World is what the communicators of a rank share that were split from each other: the fabric, and the peers that it
// has lost.
type World struct {
	Fab     fabric.Messenger
	Telling base.Pending // of a peer that is lost, in each of its groups

	mu    sync.Mutex
	lost  map[int]error
	left  map[int]bool  // peers that have closed their fabrics
	doing func() string // says what this rank does; may be nil
}

// Lose notes that the fabric has lost a peer.
func (w *World) Lose(peer int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == nil {
		w.lost = map[int]error{}
	}
	w.lost[peer] = err
}

// Leave notes that a peer has closed its fabric.
func (w *World) Leave(peer int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == nil {
		w.left = map[int]bool{}
	}
	w.left[peer] = true
}

// departed are the peers that have closed their fabrics.
func (w *World) departed() map[int]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.left)
}

// Losses are the peers that the fabric has lost, and why.
func (w *World) Losses() map[int]error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.lost)
}

// IsLost reports whether the fabric has lost a peer.
func (w *World) IsLost(peer int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost[peer] != nil
}

// setDoing sets what says what this rank does.
func (w *World) setDoing(doing func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doing = doing
}

// activity says what this rank does, for the error of a rank that waits for it.
func (w *World) activity() string {
	w.mu.Lock()
	f := w.doing
	w.mu.Unlock()
	if f == nil {
		return ""
	}
	return f()
}
