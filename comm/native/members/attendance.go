package members

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
)

// A rank that times out asks the others which operation they are in.

// SetDoing implements backend.Messenger. doing is the same for all communicators of a world: what their
// rank does.
func (g *Group) SetDoing(doing func() string) { g.World.setDoing(doing) }

// A board collects the other ranks' answers about the operations that they are in.
type board struct {
	turn    chan struct{} // holds one element while a goroutine asks
	mu      sync.Mutex
	about   uint64 // the operation
	answers map[int]Notice
	news    chan struct{}
}

func (b *board) answer(rank int, n Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answers == nil || n.About != b.about {
		return // no goroutine asks, or it asks about another one
	}
	b.answers[rank] = n
	b.event()
}

// lost has the asking goroutine look again: a missing answer may never come.
func (b *board) lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answers != nil {
		b.event()
	}
}

// event wakes the asking goroutine. The caller holds the lock.
func (b *board) event() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// How long a rank waits for the others' answers: askTimeout after its own timeout, shortAskTimeout when it explains
// another failure, which must not take long.
const (
	askTimeout      = 500 * time.Millisecond
	shortAskTimeout = 200 * time.Millisecond
)

// MaxAsked is up to how many ranks of a communicator all may ask all, when all learn of a failure at once.
const MaxAsked = 64

// timedOut makes the error of an operation that timed out: which ranks have entered it, and which have not. It's a
// mismatch if ranks have entered different operations, but sent each other no message that shows it.
func (g *Group) timedOut(op *backend.Op) error {
	var mm *fabric.MismatchError
	if g.Space != nil && errors.As(g.Space.CheckLast(), &mm) {
		return g.MismatchWith(mm.Peer, mm.Local, mm.Remote, mm.Seq)
	}
	e := &backend.TimeoutError{Where: g.own.At(op)}
	var answers map[int]Notice
	e.Attendance, answers = g.attendance(op.Seq, askTimeout, true)
	if e.Elapsed == 0 && op.Ctx.Err() == nil { // it has waited for its operands, and not yet for a rank
		e.Elapsed = op.Timeout
	}
	if err := g.differing(op, answers); err != nil {
		return err
	}
	if len(e.Missing) > 0 {
		return e
	}
	return g.diagnoseStall(op, e)
}

// peerLeft is the error of an operation in which a rank that this one waits for has left without a reason. Nothing was
// wrong for that rank: it ran a different operation under this number, or left before it. A rank that is still there
// may know of the former; the error is nil if none does.
func (g *Group) peerLeft(op *backend.Op, by int) error {
	if len(g.Members) > MaxAsked {
		return nil
	}
	others := slices.DeleteFunc(g.others(), func(r int) bool { return g.Members[r] == by })
	return g.differing(op, g.ask(op.Seq, others, shortAskTimeout, nil))
}

// differing is the mismatch of ranks that ran a different operation under the number of the one that this rank is in.
// It's nil if no answer says so.
func (g *Group) differing(op *backend.Op, answers map[int]Notice) error {
	_, _, mine, _ := g.own.UnderWay()
	for r := range g.Members {
		said := answers[r]
		var theirs fabric.Desc
		if said.About != op.Seq || len(said.Desc) != len(theirs) {
			continue
		}
		copy(theirs[:], said.Desc)
		if !theirs.Same(mine) {
			return g.MismatchWith(g.Members[r], *mine, theirs, op.Seq)
		}
	}
	return nil
}

// others returns the ranks that may be asked: those that have not left.
func (g *Group) others() (ranks []int) {
	for r := range g.Members {
		m := g.LocalIndex[r]
		if _, gone := g.departures.left(r); r != g.Rank && !gone && (m < 0 || !g.Space.HasLeft(m)) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// withAttendance adds to the error of a collective that failed before its timeout which ranks had
// arrived.
func (g *Group) withAttendance(err error, op *backend.Op) error {
	var lost *backend.PeerLostError
	var mm *backend.MismatchError
	switch {
	case op.Seq == 0:
	case errors.As(err, &lost):
		lost.Attendance, _ = g.attendance(op.Seq, shortAskTimeout, len(g.Members) <= MaxAsked)
	case errors.As(err, &mm): // perhaps of an operation before, in which this rank waited for no other
		mm.Attendance, _ = g.attendance(mm.Seq, shortAskTimeout, len(g.Members) <= MaxAsked)
	}
	return err
}

// attendance finds out which ranks have entered an operation: from their flags in shared memory, and by
// asking the others. Ranks that have not entered it are asked what they do instead.
func (g *Group) attendance(seq uint64, limit time.Duration, mayAsk bool) (a backend.Attendance,
	answers map[int]Notice) {
	a = backend.Attendance{Elapsed: g.Waits.Elapsed(), Arrived: []int{g.Rank}}
	var absent []int
	for r := range g.Members {
		if r == g.Rank {
			continue
		}
		if m := g.LocalIndex[r]; m >= 0 {
			if at, _ := g.Space.Arrived(m); at >= seq {
				a.Arrived = append(a.Arrived, r)
				continue
			}
		}
		switch after, gone := g.departures.left(r); {
		case !gone:
			absent = append(absent, r)
		case after < seq:
			a.Missing = append(a.Missing, r)
		default:
			a.Arrived = append(a.Arrived, r)
		}
	}
	if mayAsk {
		answers = g.ask(seq, absent, limit, nil)
	}
	for _, r := range absent {
		said, ok := answers[r]
		switch {
		case g.LocalIndex[r] >= 0: // its flag said so; it may have come since
			if at, _ := g.Space.Arrived(g.LocalIndex[r]); at >= seq {
				a.Arrived = append(a.Arrived, r)
				continue
			}
			a.Missing = append(a.Missing, r)
		case !ok:
			a.Unknown = append(a.Unknown, r)
			continue
		case said.Seq >= seq:
			a.Arrived = append(a.Arrived, r)
			continue
		default:
			a.Missing = append(a.Missing, r)
		}
		if !ok {
			continue
		}
		if said.RefusedSeq == seq {
			base.Note(&a.Refused, r, said.Text)
		}
		base.Note(&a.Doing, r, said.Doing)
	}
	slices.Sort(a.Arrived)
	slices.Sort(a.Missing)
	return a, answers
}

// diagnoseStall finds out why an operation did not end from which no rank is known to be missing. A rank that was
// stopped in its middle doesn't answer. A rank that has entered another operation says so, even if it waited for no
// other in that and has gone on since.
func (g *Group) diagnoseStall(op *backend.Op, e *backend.TimeoutError) error {
	others := slices.DeleteFunc(g.others(), func(r int) bool { return !slices.Contains(e.Arrived, r) })
	answers := g.ask(op.Seq, others, askTimeout, nil)
	if err := g.differing(op, answers); err != nil {
		return err
	}
	for _, r := range others {
		if _, ok := answers[r]; !ok {
			e.Unknown = append(e.Unknown, r)
		}
	}
	slices.Sort(e.Unknown)
	e.Arrived = slices.DeleteFunc(e.Arrived, func(r int) bool { return slices.Contains(e.Unknown, r) })
	return e
}

// answer says where this rank is, and what it has done. It waits for the ranks awaits in the operation in question.
func (g *Group) answer(peer int, ask Notice, awaits []int) {
	n := g.NewNotice(answerKind)
	n.Ended, n.Awaits = ask.Waits && g.HasEnded(ask.About), awaits
	n.Seq, n.About = g.Announced.Load(), ask.About
	n.RefusedSeq, n.Text = g.Refusal.Get()
	n.Doing = g.World.activity()
	if d, ok := g.World.Fab.Announced(g.ID, ask.About); ok {
		n.Desc = d[:]
	}
	if payload := n.Encode(); payload != nil {
		g.World.Fab.Control(peer, payload)
	}
}

// ask collects the answers of ranks about an operation, for a limited time or until enough is closed. It leaves out
// ranks that can't be asked, are lost, or don't answer in time. A rank that has closed its end may have done so
// because of the failure in question. It may have reported that failure, so ask waits for the report.
func (g *Group) ask(seq uint64, ranks []int, limit time.Duration, enough <-chan struct{}) map[int]Notice {
	question := g.NewNotice(askKind)
	question.About = seq
	return g.pose(question, ranks, limit, enough)
}

// pose is ask with a question of the caller's.
func (g *Group) pose(question Notice, ranks []int, limit time.Duration, enough <-chan struct{}) map[int]Notice {
	if len(ranks) == 0 {
		return nil
	}
	b := &g.board
	select {
	case b.turn <- struct{}{}:
	case <-enough:
		return nil
	}
	defer func() { <-b.turn }()
	b.mu.Lock()
	b.about, b.answers, b.news = question.About, map[int]Notice{}, make(chan struct{}, 1)
	news := b.news
	b.mu.Unlock()
	payload := question.Encode()
	var asked []int
	closed := false
	for _, r := range ranks {
		switch {
		case g.World.IsLost(g.Members[r]):
		case g.World.Fab.Control(g.Members[r], payload) == nil:
			asked = append(asked, r)
		default:
			closed = true
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for waiting := true; ; {
		b.mu.Lock()
		asked = slices.DeleteFunc(asked, func(r int) bool {
			_, answered := b.answers[r]
			return answered || g.World.IsLost(g.Members[r])
		})
		if len(asked) == 0 || !waiting {
			answers := b.answers
			b.answers = nil
			b.mu.Unlock()
			if closed {
				g.AwaitReport()
			}
			return answers
		}
		b.mu.Unlock()
		select {
		case <-news:
		case <-timer.C:
			waiting = false
		case <-enough:
			waiting = false
		}
	}
}
