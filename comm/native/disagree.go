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
	desc, n := g.job.desc, g.newNotice(noticeCompare)
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
	err := g.mismatch(peer, mine, theirs, seq)
	if g.Fail(err); seq == g.announced.Load() {
		g.departures.noteLate(err)
	}
}

// disagreedBefore returns the mismatch of an earlier operation that has broken the communicator while this one's
// messages came. An operation in which a rank only sends ends before the messages of ranks that take it for another one
// are there; they come before those of the next operation.
func (g *group) disagreedBefore() error {
	if e, ok := g.Cause().(*backend.MismatchError); ok && e.Seq < g.seq {
		return e
	}
	return nil
}
