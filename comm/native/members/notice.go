package members

import (
	"strings"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/plain"
)

// A Notice is a control message between the ranks of a communicator outside of its operations. It
// travels as JSON, at most fabric.MaxControl bytes long. Ranks in it are the communicator's.
type Notice struct {
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
	askKind     = "ask"     // which operation are you in, and what was About?
	answerKind  = "answer"  // to it: Seq is the last one that the rank has entered
	compareKind = "compare" // is About to you what it is to me?
	controlKind = "word"    // Desc is not for this backend: backend.Messenger
	SplitFailed = "unsplit" // I have no part in what About splits off, because of Text
	Left        = "left"    // I take part in no operation after Seq, because of Text
)

// NewNotice returns a notice of this rank's that is no failure.
func (g *Group) NewNotice(kind string) Notice {
	return Notice{Failure: base.Failure{Kind: kind, Rank: g.Rank}, Comm: g.ID}
}

// report sends all other members the first cause of a failure, and the operation from which on it counts. If that is
// the operation that the cause names itself, which more than one rank has entered, from is 0.
func (g *Group) report(from uint64, cause error) {
	n := Notice{Failure: base.FailureOf(cause, g.Rank), Comm: g.ID}
	if n.From == 0 {
		n.From = from
	}
	g.Broadcast(n)
}

// Encode returns a notice as a control payload, shortened until it fits.
func (n Notice) Encode() []byte {
	return base.Encode(&n, fabric.MaxControl, func() { n.Shorten(&n.Doing) })
}

// Broadcast sends a notice to every other member. A member that can't be reached finds out in
// another way.
func (g *Group) Broadcast(n Notice) {
	payload := n.Encode()
	if payload == nil {
		return
	}
	for r, m := range g.Members {
		if r != g.Rank {
			g.World.Fab.Control(m, payload)
		}
	}
}

// lose acts on the report that a rank is lost. The report is forwarded to that rank, which may be alive: one end of a
// broken link may not know of it.
func (g *Group) lose(from int, n Notice, at backend.Where) {
	size := len(g.Members)
	if n.Rank < 0 || n.Rank >= size || n.By < 0 || n.By >= size {
		return
	}
	if n.Rank == g.Rank {
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
		g.Forward(n.Failure)
	}
}

// Forward sends the report that a rank is lost to that rank itself.
func (g *Group) Forward(f base.Failure) {
	if peer := g.Member(f.Rank); f.Kind == base.Lost && f.From == 0 && peer >= 0 && f.Rank != g.Rank {
		n := Notice{Failure: f, Comm: g.ID}
		g.World.Fab.Control(peer, n.Encode())
	}
}

// Notice acts on a member's notice.
func (g *Group) Notice(peer int, n Notice) {
	from := g.RankOf(peer)
	if from < 0 {
		return
	}
	at := g.Where()
	at.Op, at.Seq = n.Op, n.Seq
	switch n.Kind {
	case base.Lost:
		g.lose(from, n, at)
	case base.Mismatch:
		g.PeerFailed(&n.Failure)
		if n.RankA == g.Rank || n.RankB == g.Rank { // kept for a rank that is ending its part
			g.departures.noteLate(n.Err(at))
		}
	case base.Abort, base.Timeout:
		g.PeerFailed(&n.Failure)
	case controlKind:
		g.controls.add(from, n.Desc)
	case askKind:
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
	case answerKind:
		g.board.answer(from, n)
	case compareKind:
		g.compared(peer, n)
	case Left:
		g.noteDeparture(from, n)
	default:
		g.own.Told(from, n)
	}
}

// Printable sanitizes a reason, which may be another process's, for the text of an error.
func Printable(why string) string {
	why = plain.Line(strings.ToValidUTF8(why[:min(len(why), fabric.MaxWhy)], ""))
	return strings.ToValidUTF8(why[:min(len(why), fabric.MaxWhy)], "")
}
