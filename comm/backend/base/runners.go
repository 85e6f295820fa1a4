package base

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// runners are the communicators of one rank that were split from each other, and have one library. It's the Handler of
// what happens outside of their messages.
type runners struct {
	lib RunnerConfig
	fab fabric.Messenger

	mu    sync.Mutex
	all   map[uint32]*Runner
	led   uint32   // communicators that this rank has numbered
	early []notice // of communicators that this rank has not made yet, or has no more
	lost  map[int]error
}

// maxEarly bounds what is kept of communicators that this rank may never make.
const maxEarly = 1024

// notice is the end of a communicator as its ranks tell each other. It travels as JSON.
type notice struct {
	Failure
	Comm uint32 `json:"c"`
}

// NewRunner begins this rank's part of the communicator of all ranks, on links that its library has made. The
// Runner is the backend.
func NewRunner(c backend.Config, lib RunnerConfig) *Runner {
	w := &runners{lib: lib, fab: transport.Extend(lib.Fabric), all: map[uint32]*Runner{}, lost: map[int]error{}}
	members := make([]int, c.Size)
	for r := range members {
		members[r] = r
	}
	x := w.add(1, c.Name, members)
	w.fab.Handle(w)
	return x
}

// newID numbers a communicator: no two have the same number, whichever rank gives it.
func (w *runners) newID() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.led++
	return 1 + (w.led-1)*uint32(w.fab.Size()) + uint32(w.fab.Rank()) + 1
}

// add makes this rank's part of a communicator.
func (w *runners) add(id uint32, name string, members []int) *Runner {
	x := &Runner{world: w, members: members, rank: slices.Index(members, w.fab.Rank()),
		c: Collective{Comm: id, Members: members}, arrived: make([]bool, len(members))}
	x.Begin(name, x.rank, x.report)
	x.waiter = x.Waiter()
	x.transfers = Transfers{Life: &x.Life, Link: w.fab, Comm: id, Members: members, RankOf: x.rankOf, Explain: x.explain,
		Lost: func(op *backend.Op, err *fabric.PeerError) error { return x.lost(x.Of(op), x.rankOf(err.Peer), err) }}
	x.windows = Windows{Transfers: &x.transfers, Rank: x.rank, Own: x.own, Failed: x.failed, LostPeer: x.lost}
	if w.lib.Memory != nil {
		x.windows.Memory = w.lib.Memory(members)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[id] = x
	w.early = slices.DeleteFunc(w.early, func(n notice) bool {
		if n.Comm == id {
			x.PeerFailed(&n.Failure)
		}
		return n.Comm == id
	})
	for peer, err := range w.lost {
		if r := x.rankOf(peer); r >= 0 {
			x.Break(LossOf(x.Where(), r, err))
		}
	}
	return x
}

// unregister removes a communicator; the last one closes the links.
func (w *runners) unregister(ctx context.Context, x *Runner) error {
	w.mu.Lock()
	delete(w.all, x.c.Comm)
	last := len(w.all) == 0
	w.mu.Unlock()
	if w.fab.Forget(x.c.Comm); last {
		return w.fab.Close(ctx)
	}
	return nil
}

// report sends the first cause of a failure to the other members.
func (x *Runner) report(from uint64, cause error) {
	n := notice{FailureOf(cause, x.rank), x.c.Comm}
	if n.From == 0 {
		n.From = from
	}
	payload := Encode(&n, fabric.MaxControl, func() { n.Shorten() })
	for r, peer := range x.members {
		if r != x.rank {
			x.world.fab.Control(peer, payload) // who can't be reached learns otherwise
		}
	}
}

// Control implements fabric.Handler.
func (w *runners) Control(peer int, payload []byte) {
	var n notice
	if json.Unmarshal(payload, &n) != nil || !n.Known() {
		return
	}
	w.mu.Lock()
	x := w.all[n.Comm]
	if x == nil {
		if len(w.early) == maxEarly {
			w.early = slices.Delete(w.early, 0, 1)
		}
		w.early = append(w.early, n)
	}
	w.mu.Unlock()
	if x != nil && x.rankOf(peer) >= 0 {
		x.PeerFailed(&n.Failure)
	}
}

// PeerLost implements fabric.Handler: it breaks every communicator that the peer is in, and tells the others, who may
// have no link to it.
func (w *runners) PeerLost(peer int, err error) {
	w.mu.Lock()
	w.lost[peer] = err
	var hit []*Runner
	for _, x := range w.all {
		if x.rankOf(peer) >= 0 && !errors.Is(err, fabric.ErrClosing) {
			hit = append(hit, x)
		}
	}
	w.mu.Unlock()
	for _, x := range hit {
		x.Fail(LossOf(x.Where(), x.rankOf(peer), err))
	}
}

// PeerLeft implements fabric.Handler: messages that wait for the peer have failed.
func (w *runners) PeerLeft(int) {}

// Mismatch implements fabric.Handler.
func (w *runners) Mismatch(peer int, key fabric.Key, local, remote fabric.Desc) {
	w.mu.Lock()
	x := w.all[key.Comm]
	w.mu.Unlock()
	if x != nil {
		x.Fail(x.Disagreement(x.rankOf(peer), &local, &remote, key.Tag))
	}
}
