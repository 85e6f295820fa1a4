package native

import (
	"encoding/json"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// notice is what the ranks of a communicator tell each other outside of its
// operations. It travels as JSON, at most fabric.MaxControl bytes long. Ranks in
// it are the communicator's.
type notice struct {
	Kind string `json:"k"` // one of the constants below
	Comm uint32 `json:"c"`
	Seq  uint64 `json:"s,omitempty"` // the operation; answer: the last one that the rank has entered
	Op   string `json:"o,omitempty"`
	Rank int    `json:"r"`            // lost: who; mismatch, timeout, abort: who found it
	By   int    `json:"b,omitempty"`  // lost: who found it
	Text string `json:"t,omitempty"`  // reason
	From uint64 `json:"fr,omitempty"` // the first operation that fails for it; 0: all that are under way
	// lost, timeout, abort: the rank couldn't make its part of the communicator
	Unopened bool `json:"un,omitempty"`
	// mismatch
	RankA int    `json:"ra,omitempty"`
	RankB int    `json:"rb,omitempty"`
	OpA   string `json:"oa,omitempty"`
	OpB   string `json:"ob,omitempty"`
	// timeout
	Elapsed time.Duration `json:"e,omitempty"`
	Missing []int         `json:"m,omitempty"`
	Arrived []int         `json:"a,omitempty"`
	Unknown []int         `json:"u,omitempty"`
	// timeout: why missing ranks are missing; answer: what this rank has refused, and under which number
	Refused    map[int]string `json:"f,omitempty"`
	RefusedSeq uint64         `json:"fs,omitempty"`
	// timeout: what missing ranks do; answer: what this rank does
	Others map[int]string `json:"d,omitempty"`
	Doing  string         `json:"do,omitempty"`
	// ask, answer: the operation that the question is about; compare: the operation that it waits in; unsplit: the split
	About uint64 `json:"ab,omitempty"`
	// left: what the rank described its last operation as; answer, compare: what it did About as; word: what it says
	Desc []byte `json:"x,omitempty"`
}

// The kinds of notice.
const (
	noticeLost     = "lost"
	noticeMismatch = "mismatch"
	noticeTimeout  = "timeout"
	noticeAbort    = "abort"
	noticeAsk      = "ask"     // which operation are you in, and what was About?
	noticeAnswer   = "answer"  // to it: Seq, Desc
	noticeCompare  = "compare" // is About to you what it is to me?
	noticeUnsplit  = "unsplit" // I have no part in what About splits off, because of Text
	noticeLeft     = "left"    // I take part in no operation after Seq
	noticeWord     = "word"    // Desc is not for this backend: backend.Courier
)

// tell passes the first cause of a failure on to all other members, and from which operation on it is one, if that's not the
// operation that the cause itself names, which more than one rank has entered.
func (g *group) tell(from uint64, cause error) {
	n := noticeOf(cause, g.rank)
	n.Comm = g.id
	if n.From == 0 {
		n.From = from
	}
	g.broadcast(n)
}

// noticeOf says what a rank has found.
func noticeOf(cause error, rank int) notice {
	n := notice{Rank: rank}
	switch e := cause.(type) {
	case *backend.PeerLostError:
		n.Kind, n.Rank, n.By, n.Text, n.Op, n.Seq = noticeLost, e.Peer, rank, e.Cause, e.Op, e.Seq
	case *backend.MismatchError:
		n.Kind, n.Seq, n.Op = noticeMismatch, e.Seq, e.Op
		n.RankA, n.RankB, n.OpA, n.OpB = e.RankA, e.RankB, e.OpA, e.OpB
		n.From = e.Seq
	case *backend.TimeoutError:
		n.Kind, n.Seq, n.Op, n.Elapsed = noticeTimeout, e.Seq, e.Op, e.Elapsed
		n.Missing, n.Arrived, n.Unknown, n.Refused, n.Others = e.Missing, e.Arrived, e.Unknown, e.Refused, e.Doing
	case *backend.AbortedError:
		n.Kind, n.Seq, n.Op, n.Text, n.Rank = noticeAbort, e.Seq, e.Op, e.Reason, e.By
		n.From = e.Seq
	default:
		n.Kind, n.Text = noticeAbort, cause.Error()
	}
	return n
}

// ends reports whether a notice is of the end of its communicator.
func (n *notice) ends() bool {
	switch n.Kind {
	case noticeLost, noticeMismatch, noticeTimeout, noticeAbort:
		return true
	}
	return false
}

// cause is what a notice of the end of a communicator breaks it with.
func (n *notice) cause(at backend.Where) error {
	switch n.Kind {
	case noticeLost:
		return &backend.PeerLostError{Where: at, Peer: n.Rank, Cause: n.Text}
	case noticeMismatch:
		return &backend.MismatchError{Where: at, RankA: n.RankA, RankB: n.RankB, OpA: n.OpA, OpB: n.OpB}
	case noticeTimeout:
		return &backend.TimeoutError{Where: at, Attendance: backend.Attendance{
			Elapsed: n.Elapsed, Missing: n.Missing, Arrived: n.Arrived, Unknown: n.Unknown, Refused: n.Refused, Doing: n.Others}}
	}
	return &backend.AbortedError{Where: at, By: n.Rank, Reason: n.Text}
}

// translated returns the notice with other numbers for its ranks.
func (n notice) translated(rank func(r int) int) notice {
	list := func(ranks []int) (other []int) {
		for _, r := range ranks {
			other = append(other, rank(r))
		}
		return other
	}
	n.Rank, n.By, n.RankA, n.RankB = rank(n.Rank), rank(n.By), rank(n.RankA), rank(n.RankB)
	n.Missing, n.Arrived, n.Unknown = list(n.Missing), list(n.Arrived), list(n.Unknown)
	n.Refused, n.Others = nil, nil
	return n
}

// shorten drops what a notice can do without, or halves its longest part: its text, or its lists of ranks.
func (n *notice) shorten() {
	if len(n.Refused)+len(n.Others) > 0 {
		n.Refused, n.Others = nil, nil
		return
	}
	if ranks := max(len(n.Missing), len(n.Arrived), len(n.Unknown)); ranks > len(n.Text)/8 {
		half := func(list []int) []int { return list[:min(len(list), ranks/2)] }
		n.Missing, n.Arrived, n.Unknown = half(n.Missing), half(n.Arrived), half(n.Unknown)
		return
	}
	longest := &n.Text
	for _, s := range []*string{&n.OpA, &n.OpB, &n.Doing} {
		if len(*s) > len(*longest) {
			longest = s
		}
	}
	*longest = (*longest)[:len(*longest)/2]
}

// encode returns a notice as a control payload, shortened until it fits.
func (n notice) encode() []byte {
	payload, err := json.Marshal(n)
	for err == nil && len(payload) > fabric.MaxControl {
		n.shorten()
		payload, err = json.Marshal(n)
	}
	if err != nil {
		return nil
	}
	return payload
}

// broadcast sends a notice to every other member; one that can't be reached has other
// means to learn.
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

// lost acts on the news that a rank is lost. It's passed on to that rank itself, which may well live: a link can break of which one
// end doesn't know, or hears nothing.
func (g *group) lost(from int, n notice, at backend.Where) {
	size := len(g.members)
	if n.Rank < 0 || n.Rank >= size || n.By < 0 || n.By >= size {
		return
	}
	if n.Rank == g.rank {
		g.breakWith(&backend.PeerLostError{Where: at, Peer: n.By, Cause: "it has lost its link to this rank: " + n.Text})
		return
	}
	g.words.lost(n.Rank, n.Text)
	cause := n.cause(at)
	g.telling.begin()
	defer g.telling.end()
	if n.From > 0 { // it has left, and knows that
		g.breakFrom(n.From, cause)
	} else if g.breakWith(cause) && from == n.By {
		g.world.fab.Control(g.members[n.Rank], n.encode())
	}
}

// notice acts on what a member tells.
func (g *group) notice(peer int, n notice) {
	from := g.rankOf(peer)
	if from < 0 {
		return
	}
	at := backend.Where{Comm: g.name, Rank: g.rank, Op: n.Op, Seq: n.Seq}
	switch n.Kind {
	case noticeLost:
		g.lost(from, n, at)
	case noticeMismatch, noticeAbort:
		g.breakFrom(n.From, n.cause(at))
	case noticeTimeout:
		g.breakWith(n.cause(at))
	case noticeLeft:
		g.hasLeft(from, n)
	case noticeWord:
		g.words.heard(from, n.Desc)
	case noticeAsk:
		if g.telling.idle() {
			g.answer(peer, n)
			return
		}
		go func() { // who has the answer has heard of the failure
			g.telling.wait()
			g.answer(peer, n)
		}()
	case noticeAnswer:
		g.status.answer(from, n)
	case noticeUnsplit:
		g.unsplit(from, n)
	case noticeCompare:
		g.compared(peer, n)
	}
}
