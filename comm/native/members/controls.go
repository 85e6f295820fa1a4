package members

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// A controlQueue holds the payloads that members have sent to each other, which aren't for this backend, and the
// members that are lost. It outlives the communicator's breaking: by these payloads its survivors find each other.
type controlQueue struct {
	mu   sync.Mutex
	list []backend.Control
	gone map[int]string // ranks that other members have lost
	news chan struct{}  // closed at the next event; nil if no call has asked for it
}

// maxControls bounds what is kept until it's read: more than one payload from each of a thousand ranks.
const maxControls = 4096

// SendControl implements backend.Messenger.
func (g *Group) SendControl(rank int, payload []byte) error {
	if rank < 0 || rank >= len(g.Members) || len(payload) > backend.MaxControl {
		return fmt.Errorf("a word of %d bytes to rank %d", len(payload), rank)
	}
	n := g.NewNotice(controlKind)
	n.Desc = payload
	return g.World.Fab.Control(g.Members[rank], n.Encode())
}

// Controls implements backend.Messenger.
func (g *Group) Controls() ([]backend.Control, <-chan struct{}) {
	x := &g.controls
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.list
	x.list = nil
	if x.news == nil {
		x.news = make(chan struct{})
	}
	return list, x.news
}

// Gone implements backend.Messenger.
func (g *Group) Gone() map[int]string {
	gone := map[int]string{}
	g.controls.mu.Lock()
	maps.Copy(gone, g.controls.gone)
	g.controls.mu.Unlock()
	for p, err := range g.World.Losses() {
		if r := g.RankOf(p); r >= 0 {
			gone[r] = base.Reason(err)
		}
	}
	return gone
}

// Closed implements backend.Messenger.
func (g *Group) Closed() (ranks []int) {
	for p := range g.World.departed() {
		if r := g.RankOf(p); r >= 0 {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// add appends a payload.
func (x *controlQueue) add(from int, payload []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.list) == maxControls {
		x.list = slices.Delete(x.list, 0, 1)
	}
	x.list = append(x.list, backend.Control{From: from, Payload: payload})
	x.event()
}

// lost notes that a rank is lost, or has left. why is empty if this rank's own fabric has reported it, which
// knows the reason.
func (x *controlQueue) lost(rank int, why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if why != "" {
		if x.gone == nil {
			x.gone = map[int]string{}
		}
		x.gone[rank] = why
	}
	x.event()
}

// NoteGone notes that a member has lost a rank, which the others are told of: all must look for the same survivors. why
// is empty if this rank's own fabric knows it.
func (g *Group) NoteGone(rank int, why string) { g.controls.lost(rank, why) }

// event wakes the readers. The caller holds the lock.
func (x *controlQueue) event() {
	if x.news != nil {
		close(x.news)
		x.news = nil
	}
}

// A payload must fit a control message of the fabric, in which it's written in base64, with the
// notice around it.
const _ = uint(fabric.MaxControl - backend.MaxControl*4/3 - 512)
