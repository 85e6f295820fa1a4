package members

import (
	"errors"
	"slices"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// Ranks that call different operations may wait for each other without ever getting a message that shows it. Or they
// wait for a rank that has gone on, and sends and receives no message. So a rank that has waited for a while sends its
// operation's description to the ranks with which it exchanges messages. It also compares with the ranks that share
// memory with it, whose operations may need no messages.

// compareWhenSlow does that, and answers ranks that have asked for which ranks this one waits. It's the waiter's Slow:
// it runs on the goroutine of the operation under way, and must not wait.
func (g *Group) compareWhenSlow() {
	g.reportAwaited()
	var peers []int
	g.own.Posted(func(m *fabric.Msg, _ int, _ bool) {
		if !m.Done() && m.Peer != g.Members[g.Rank] && !slices.Contains(peers, m.Peer) {
			peers = append(peers, m.Peer)
		}
	})
	if len(peers) == 0 {
		return // ranks that wait for each other's flags compare descriptions there
	}
	var mm *fabric.MismatchError
	if g.Space != nil && errors.As(g.Space.CheckLast(), &mm) {
		err := g.MismatchWith(mm.Peer, mm.Local, mm.Remote, mm.Seq)
		g.Reporting.Begin()
		go func() {
			defer g.Reporting.End()
			g.Fail(err)
		}()
		return
	}
	seq, _, _, said := g.own.UnderWay()
	desc, n := *said, g.NewNotice(compareKind)
	n.About, n.Desc = seq, desc[:]
	payload := n.Encode()
	g.Reporting.Begin() // Finalize waits for it
	go func() {
		defer g.Reporting.End()
		for _, p := range peers {
			if !g.World.IsLost(p) {
				g.World.Fab.Control(p, payload)
			}
		}
	}()
}

// compared compares another rank's description of its operation with this rank's description of the same number. A
// rank that hasn't come to it yet is asked again.
func (g *Group) compared(peer int, n Notice) {
	mine, ok := g.World.Fab.Announced(g.ID, n.About)
	if theirs := (fabric.Desc{}); ok && len(n.Desc) == len(theirs) {
		if copy(theirs[:], n.Desc); theirs != mine {
			g.Disagree(peer, mine, theirs, n.About)
		}
	}
}

// Disagree breaks the communicator since a peer runs a different operation under a number than this rank does,
// or did.
func (g *Group) Disagree(peer int, mine, theirs fabric.Desc, seq uint64) {
	fail := func(err error) {
		if g.Fail(err); seq == g.Announced.Load() {
			g.departures.noteLate(err)
		}
	}
	if !mine.Same(&theirs) {
		fail(g.MismatchWith(peer, mine, theirs, seq))
		return
	}
	g.Reporting.Begin()
	go func() { // by which answers come
		defer g.Reporting.End()
		fail(g.disagreedEarlier(peer, mine, theirs, seq))
	}()
}

// maxEarlier bounds for how many operations a rank is asked about which of them it disagrees.
const maxEarlier = 16

// disagreedEarlier makes the error of two ranks that describe an operation as the same, but after different ones. It
// asks the peer what these were, unless the communicator breaks meanwhile.
func (g *Group) disagreedEarlier(peer int, mine, theirs fabric.Desc, seq uint64) error {
	rank := g.RankOf(peer)
	for at := seq - 1; at > 0 && seq-at <= maxEarlier && rank >= 0; at-- {
		was, known := g.World.Fab.Announced(g.ID, at)
		if !known {
			break
		}
		question := g.NewNotice(askKind)
		question.About, question.Now = at, true
		said := g.pose(question, []int{rank}, shortAskTimeout, g.Broken())[rank]
		if said.About != at || len(said.Desc) != len(was) {
			break
		}
		if other := fabric.Desc(said.Desc); !other.Same(&was) {
			return g.MismatchWith(peer, was, other, at)
		}
	}
	return g.MismatchWith(peer, mine, theirs, seq)
}

// DisagreedBefore returns the mismatch of an earlier operation that has broken the communicator while this one's
// messages came. An operation in which a rank only sends ends before the messages of ranks that take it for another one
// are there; they come before those of the next operation. Ranks of a host that sent each other none compare now, since
// this operation may have needed none of their flags.
func (g *Group) DisagreedBefore(seq uint64) error {
	if g.Space != nil {
		if err := g.Space.CheckLast(); err != nil {
			return err
		}
	}
	if !g.Raised() {
		return nil
	}
	if e, ok := g.Cause().(*backend.MismatchError); ok && e.Seq < seq {
		return e
	}
	return nil
}

// CheckLast compares this rank's last operations, before it leaves, with those of the other ranks
// of the host under the same numbers, as far as they have arrived. Of two ranks that disagree, the
// one that arrives later finds out.
func (g *Group) CheckLast() error {
	var mm *fabric.MismatchError
	if g.Space == nil || g.Raised() || !errors.As(g.Space.CheckLast(), &mm) {
		return nil
	}
	err := g.MismatchWith(mm.Peer, mm.Local, mm.Remote, mm.Seq)
	g.Fail(err)
	return err
}
