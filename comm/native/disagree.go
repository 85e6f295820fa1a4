package native

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
func (g *group) compareWhenSlow() {
	g.reportAwaited()
	var peers []int
	for k := range g.posted {
		if m := g.msgs[k]; !m.Done() && m.Peer != g.members[g.rank] && !slices.Contains(peers, m.Peer) {
			peers = append(peers, m.Peer)
		}
	}
	if len(peers) == 0 {
		return // ranks that wait for each other's flags compare descriptions there
	}
	var mm *fabric.MismatchError
	if g.space != nil && errors.As(g.space.CheckLast(), &mm) {
		err := g.mismatch(mm.Peer, mm.Local, mm.Remote, mm.Seq)
		g.Reporting.Begin()
		go func() {
			defer g.Reporting.End()
			g.Fail(err)
		}()
		return
	}
	desc, n := g.said, g.newNotice(noticeCompare)
	n.About, n.Desc = g.seq, desc[:]
	payload := n.encode()
	g.Reporting.Begin() // Finalize waits for it
	go func() {
		defer g.Reporting.End()
		for _, p := range peers {
			if !g.world.isLost(p) {
				g.world.fab.Control(p, payload)
			}
		}
	}()
}

// compared compares another rank's description of its operation with this rank's description of the same number. A
// rank that hasn't come to it yet is asked again.
func (g *group) compared(peer int, n notice) {
	mine, ok := g.world.fab.Announced(g.id, n.About)
	if theirs := (fabric.Desc{}); ok && len(n.Desc) == len(theirs) {
		if copy(theirs[:], n.Desc); theirs != mine {
			g.disagree(peer, mine, theirs, n.About)
		}
	}
}

// disagree breaks the communicator since a peer runs a different operation under a number than this rank does,
// or did.
func (g *group) disagree(peer int, mine, theirs fabric.Desc, seq uint64) {
	fail := func(err error) {
		if g.Fail(err); seq == g.announced.Load() {
			g.departures.noteLate(err)
		}
	}
	if !mine.Same(&theirs) {
		fail(g.mismatch(peer, mine, theirs, seq))
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
func (g *group) disagreedEarlier(peer int, mine, theirs fabric.Desc, seq uint64) error {
	rank := g.rankOf(peer)
	for at := seq - 1; at > 0 && seq-at <= maxEarlier && rank >= 0; at-- {
		was, known := g.world.fab.Announced(g.id, at)
		if !known {
			break
		}
		question := g.newNotice(noticeAsk)
		question.About, question.Now = at, true
		said := g.pose(question, []int{rank}, shortAskTimeout, g.Broken())[rank]
		if said.About != at || len(said.Desc) != len(was) {
			break
		}
		if other := fabric.Desc(said.Desc); !other.Same(&was) {
			return g.mismatch(peer, was, other, at)
		}
	}
	return g.mismatch(peer, mine, theirs, seq)
}

// disagreedBefore returns the mismatch of an earlier operation that has broken the communicator while this one's
// messages came. An operation in which a rank only sends ends before the messages of ranks that take it for another one
// are there; they come before those of the next operation. Ranks of a host that sent each other none compare now, since
// this operation may have needed none of their flags.
func (g *group) disagreedBefore() error {
	if g.space != nil {
		if err := g.space.CheckLast(); err != nil {
			return err
		}
	}
	if !g.Raised() {
		return nil
	}
	if e, ok := g.Cause().(*backend.MismatchError); ok && e.Seq < g.seq {
		return e
	}
	return nil
}
