package fabrictest

import (
	"sync"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// events is a Handler that records its calls.
type events struct {
	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at every event
	lost       map[int][]error
	mismatches []mismatch
	controls   []control
	onControl  func(peer int, payload []byte)
}

type mismatch struct {
	peer          int
	key           fabric.Key
	local, remote fabric.Desc
}

type control struct {
	peer    int
	payload []byte
}

func newEvents() *events { return &events{changed: make(chan struct{}), lost: map[int][]error{}} }

func (e *events) note(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

// PeerLeft implements fabric.Handler.
func (e *events) PeerLeft(int) {}

// PeerLost implements fabric.Handler.
func (e *events) PeerLost(peer int, err error) {
	e.note(func() { e.lost[peer] = append(e.lost[peer], err) })
}

// Mismatch implements fabric.Handler.
func (e *events) Mismatch(peer int, key fabric.Key, local, remote fabric.Desc) {
	e.note(func() { e.mismatches = append(e.mismatches, mismatch{peer, key, local, remote}) })
}

// Control implements fabric.Handler.
func (e *events) Control(peer int, payload []byte) {
	e.mu.Lock()
	f := e.onControl
	e.mu.Unlock()
	if f != nil {
		f(peer, payload)
	}
	e.note(func() { e.controls = append(e.controls, control{peer, payload}) })
}

// await waits until the condition holds; what names it.
func (e *events) await(what string, holds func() bool) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		e.mu.Lock()
		ok, changed := holds(), e.changed
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			fail("not told in %v: %s", patience, what)
		}
	}
}
