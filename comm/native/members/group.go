package members

import (
	"errors"
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// Group is one rank's part of one communicator, as far as the other members are concerned.
type Group struct {
	base.Life
	World   *World
	ID      uint32
	Rank    int
	Members []int // fabric rank of each rank

	// Shared by the ranks of this host; Space is nil if no host has two ranks.
	Space      *fabric.Space
	Local      []int // ranks on this host, in the order of the space's members
	LocalIndex []int // their index there; -1 for ranks elsewhere

	Waits     *fabric.Waiter // of the collective under way
	Announced atomic.Uint64  // last operation known to have sent messages
	Refusal   base.Refusal   // of this rank's last one

	own          Own
	fabricToRank map[int]int // of members whose two ranks differ
	board        board
	controls     controlQueue
	awaited      awaited
	departures   departures
}

// Own is what this rank has of its own that concerns the others. But for Told, it's asked by the goroutine of the
// collective under way.
type Own interface {
	// At says where an error of an operation is.
	At(op *backend.Op) backend.Where
	// UnderWay is the number of the collective under way, what it is, and what messages describe it as.
	UnderWay() (seq uint64, job *base.Job, desc, said *fabric.Desc)
	// Posted calls f for its messages that are posted, of which some come from a rank and others go to one.
	Posted(f func(m *fabric.Msg, rank int, comes bool))

	// Told gets the notices of members that are about no failure of this communicator.
	Told(from int, n Notice)
}

// Init begins the part of a communicator of the given fabric ranks.
func (g *Group) Init(w *World, own Own, id uint32, name string, members []int) {
	g.World, g.own, g.ID, g.Members, g.fabricToRank = w, own, id, members, map[int]int{}
	g.board.turn = make(chan struct{}, 1)
	for r, m := range members {
		if m != r {
			g.fabricToRank[m] = r
		}
		if m == w.Fab.Rank() {
			g.Rank = r
		}
	}
	g.Begin(name, g.Rank, g.report)
	g.Shared = &w.Telling
	g.Waits = g.Waiter()
	g.Waits.Slow = g.compareWhenSlow
}

// Lost acts on the loss of a peer that the fabric has reported.
func (g *Group) Lost(peer int, err error) {
	g.controls.lost(g.RankOf(peer), "")
	g.board.lost()
	if !errors.Is(err, fabric.ErrClosing) { // else its caller gets the error, and waits for the peer's report
		g.Fail(base.LossOf(g.Where(), g.RankOf(peer), err))
	}
}

// RankOf translates a fabric's rank into this communicator's; -1 if it's not a member.
func (g *Group) RankOf(fabricRank int) int {
	if g.Member(fabricRank) == fabricRank {
		return fabricRank
	}
	if r, ok := g.fabricToRank[fabricRank]; ok {
		return r
	}
	return -1
}

// Member translates this communicator's rank into the fabric's; -1 if there is none.
func (g *Group) Member(rank int) int {
	if rank < 0 || rank >= len(g.Members) {
		return -1
	}
	return g.Members[rank]
}
