package native

import (
	"encoding/json"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// A notice is a control message between the ranks of a communicator outside of its operations. It
// travels as JSON, at most fabric.MaxControl bytes long. Ranks in it are the communicator's.
type notice struct {
	base.Failure        // its Kind is one of the constants below, or a failure's
	Comm         uint32 `json:"c"`
	// lost, timeout, abort: the rank couldn't open its part of the communicator
	Unopened bool `json:"un,omitempty"`
	// answer: under which number this rank has refused what Text says, and what it does
	RefusedSeq uint64 `json:"fs,omitempty"`
	Doing      string `json:"do,omitempty"`
	// ask: say also for which ranks you wait in About
	Waits bool `json:"wt,omitempty"`
	// ask: answer before this rank has reported its failure, which may be of the same question
	Now bool `json:"nw,omitempty"`
	// answer to that: this rank has finished About; or it waits for these ranks there
	Ended  bool  `json:"en,omitempty"`
	Awaits []int `json:"aw,omitempty"`
	// ask, answer: the operation that the question is about; compare: the operation that it waits in; unsplit: the
	// split
	About uint64 `json:"ab,omitempty"`
	// left: what the rank described its last operation as; answer, compare: what it did About as; word: what it says
	Desc []byte `json:"x,omitempty"`
}

// The kinds of notice that are no failures.
const (
	noticeAsk         = "ask"     // which operation are you in, and what was About?
	noticeAnswer      = "answer"  // to it: Seq is the last one that the rank has entered
	noticeCompare     = "compare" // is About to you what it is to me?
	noticeSplitFailed = "unsplit" // I have no part in what About splits off, because of Text
	noticeLeft        = "left"    // I take part in no operation after Seq, because of Text
	noticeControl     = "word"    // Desc is not for this backend: backend.Messenger
)

// newNotice returns a notice of this rank's that is no failure.
func (g *group) newNotice(kind string) notice {
	return notice{Failure: base.Failure{Kind: kind, Rank: g.rank}, Comm: g.id}
}

// report sends all other members the first cause of a failure, and the operation from which on it counts. If that is
// the operation that the cause names itself, which more than one rank has entered, from is 0.
func (g *group) report(from uint64, cause error) {
	n := notice{Failure: base.FailureOf(cause, g.rank), Comm: g.id}
	if n.From == 0 {
		n.From = from
	}
	g.broadcast(n)
}

// encode returns a notice as a control payload, shortened until it fits.
func (n notice) encode() []byte {
	return base.Encode(&n, fabric.MaxControl, func() { n.Shorten(&n.Doing) })
}

// broadcast sends a notice to every other member. A member that can't be reached finds out in
// another way.
func (g *group) broadcast(n notice) {
	payload := n.encode()
	if payload == nil {
		return
	}
	for r, m := range g.members {
		if r != g.rank {
			g.world.fab.Control(m, payload)
		}
	}
}

// Control implements fabric.Handler.
func (w *world) Control(peer int, payload []byte) {
	var n notice
	if json.Unmarshal(payload, &n) != nil {
		return
	}
	if g := w.recipient(peer, n); g != nil {
		g.notice(peer, n)
	}
}

// lost acts on the report that a rank is lost. The report is forwarded to that rank, which may be alive: one end of a
// broken link may not know of it.
func (g *group) lost(from int, n notice, at backend.Where) {
	size := len(g.members)
	if n.Rank < 0 || n.Rank >= size || n.By < 0 || n.By >= size {
		return
	}
	if n.Rank == g.rank {
		g.PeerFailed(&n.Failure)
		return
	}
	g.controls.lost(n.Rank, n.Text)
	cause := n.Err(at)
	g.Reporting.Begin()
	defer g.Reporting.End()
	if n.From > 0 { // it has left, and knows that
		g.BreakFrom(n.From, cause)
	} else if g.Break(cause) && from == n.By {
		g.forward(n.Failure)
	}
}

// forward sends the report that a rank is lost to that rank itself.
func (g *group) forward(f base.Failure) {
	if peer := g.member(f.Rank); f.Kind == base.Lost && f.From == 0 && peer >= 0 && f.Rank != g.rank {
		n := notice{Failure: f, Comm: g.id}
		g.world.fab.Control(peer, n.encode())
	}
}

// notice acts on a member's notice.
func (g *group) notice(peer int, n notice) {
	from := g.rankOf(peer)
	if from < 0 {
		return
	}
	at := g.Where()
	at.Op, at.Seq = n.Op, n.Seq
	switch n.Kind {
	case base.Lost:
		g.lost(from, n, at)
	case base.Mismatch:
		g.PeerFailed(&n.Failure)
		if n.RankA == g.rank || n.RankB == g.rank { // kept for a rank that is ending its part
			g.departures.noteLate(n.Err(at))
		}
	case base.Abort, base.Timeout:
		g.PeerFailed(&n.Failure)
	case noticeLeft:
		g.noteDeparture(from, n)
	case noticeControl:
		g.controls.add(from, n.Desc)
	case noticeAsk:
		if n.Now || g.Reporting.Idle() && !n.Waits {
			g.answer(peer, n, nil)
			return
		}
		go func() { // the report of the failure precedes the answer
			var awaits []int
			if n.Waits {
				awaits = g.awaits(n.About)
			}
			g.Reporting.Wait()
			g.answer(peer, n, awaits)
		}()
	case noticeAnswer:
		g.status.answer(from, n)
	case noticeSplitFailed:
		g.splitFailed(from, n)
	case noticeCompare:
		g.compared(peer, n)
	}
}
