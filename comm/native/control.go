package native

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
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
	Seq  uint64 `json:"s,omitempty"`
	Op   string `json:"o,omitempty"`
	Rank int    `json:"r"`           // lost: who; mismatch, timeout, abort: who found it
	Text string `json:"t,omitempty"` // reason
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
}

// The kinds of notice.
const (
	noticeLost     = "lost"
	noticeMismatch = "mismatch"
	noticeTimeout  = "timeout"
	noticeAbort    = "abort"
	noticeAsk      = "ask"    // which operation are you in?
	noticeAnswer   = "answer" // to it: Seq
)

// tell passes the first cause of a failure on to all other members.
func (g *group) tell(cause error) {
	n := notice{Comm: g.id, Rank: g.rank}
	switch e := cause.(type) {
	case *backend.PeerLostError:
		n.Kind, n.Rank, n.Text, n.Op, n.Seq = noticeLost, e.Peer, e.Cause, e.Op, e.Seq
	case *backend.MismatchError:
		n.Kind, n.Seq, n.Op = noticeMismatch, e.Seq, e.Op
		n.RankA, n.RankB, n.OpA, n.OpB = e.RankA, e.RankB, e.OpA, e.OpB
	case *backend.TimeoutError:
		n.Kind, n.Seq, n.Op, n.Elapsed = noticeTimeout, e.Seq, e.Op, e.Elapsed
		n.Missing, n.Arrived, n.Unknown = e.Missing, e.Arrived, e.Unknown
	case *backend.AbortedError:
		n.Kind, n.Seq, n.Op, n.Text, n.Rank = noticeAbort, e.Seq, e.Op, e.Reason, e.By
	default:
		n.Kind, n.Text = noticeAbort, cause.Error()
	}
	g.broadcast(n)
}

// shorten halves the notice's longest part: its text, or its lists of ranks.
func (n *notice) shorten() {
	if ranks := max(len(n.Missing), len(n.Arrived), len(n.Unknown)); ranks > len(n.Text)/8 {
		half := func(list []int) []int { return list[:min(len(list), ranks/2)] }
		n.Missing, n.Arrived, n.Unknown = half(n.Missing), half(n.Arrived), half(n.Unknown)
		return
	}
	longest := &n.Text
	for _, s := range []*string{&n.OpA, &n.OpB} {
		if len(*s) > len(*longest) {
			longest = s
		}
	}
	*longest = (*longest)[:len(*longest)/2]
}

// broadcast sends a notice to every other member; one that can't be reached has other
// means to learn. What is too long is shortened until it fits.
func (g *group) broadcast(n notice) {
	payload, err := json.Marshal(n)
	for err == nil && len(payload) > fabric.MaxControl {
		n.shorten()
		payload, err = json.Marshal(n)
	}
	if err != nil {
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

// notice acts on what a member tells.
func (g *group) notice(peer int, n notice) {
	from := g.rankOf(peer)
	if from < 0 {
		return
	}
	at := backend.Where{Comm: g.name, Rank: g.rank, Op: n.Op, Seq: n.Seq}
	switch n.Kind {
	case noticeLost:
		if n.Rank != g.rank && n.Rank >= 0 && n.Rank < len(g.members) {
			g.breakWith(&backend.PeerLostError{Where: at, Peer: n.Rank, Cause: n.Text})
		}
	case noticeMismatch:
		g.breakWith(&backend.MismatchError{Where: at, RankA: n.RankA, RankB: n.RankB, OpA: n.OpA, OpB: n.OpB})
	case noticeTimeout:
		g.breakWith(&backend.TimeoutError{Where: at, Elapsed: n.Elapsed, Missing: n.Missing, Arrived: n.Arrived, Unknown: n.Unknown})
	case noticeAbort:
		g.breakWith(&backend.AbortedError{Where: at, By: n.Rank, Reason: n.Text})
	case noticeAsk:
		answer, err := json.Marshal(notice{Kind: noticeAnswer, Comm: g.id, Seq: g.announced.Load(), Rank: g.rank})
		if err == nil {
			g.world.fab.Control(peer, answer)
		}
	case noticeAnswer:
		g.status.answer(from, n.Seq)
	}
}

// statusBoard collects answers to the question which operation the others are in.
type statusBoard struct {
	mu   sync.Mutex
	seqs map[int]uint64
	news chan struct{}
}

func (b *statusBoard) answer(rank int, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seqs == nil {
		return // nobody asked
	}
	b.seqs[rank] = seq
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// askTimeout is how long a rank that has already waited in vain waits for the
// others' word about where they are.
const askTimeout = 500 * time.Millisecond

// timedOut makes the error of an operation whose time is over, with who has
// entered it and who hasn't: from the flags in shared memory where there are
// some, from asking where there are none.
func (g *group) timedOut(op *backend.Op) error {
	e := &backend.TimeoutError{Where: g.whereIs(op), Elapsed: g.waiter.Elapsed(), Arrived: []int{g.rank}}
	var ask []int
	for r := range g.members {
		if r == g.rank {
			continue
		}
		if m := g.localIndex[r]; m >= 0 {
			seq, _ := g.space.Arrived(m)
			if seq >= op.Seq {
				e.Arrived = append(e.Arrived, r)
			} else {
				e.Missing = append(e.Missing, r)
			}
			continue
		}
		ask = append(ask, r)
	}
	if len(ask) > 0 {
		answers := g.ask(ask)
		for _, r := range ask {
			switch seq, ok := answers[r]; {
			case !ok:
				e.Unknown = append(e.Unknown, r)
			case seq >= op.Seq:
				e.Arrived = append(e.Arrived, r)
			default:
				e.Missing = append(e.Missing, r)
			}
		}
	}
	slices.Sort(e.Arrived)
	slices.Sort(e.Missing)
	return e
}

// ask collects the sequence numbers that the ranks are at; who doesn't answer in time is left out.
func (g *group) ask(ranks []int) map[int]uint64 {
	b := &g.status
	b.mu.Lock()
	b.seqs, b.news = map[int]uint64{}, make(chan struct{}, 1)
	news := b.news
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.seqs = nil
		b.mu.Unlock()
	}()
	payload, err := json.Marshal(notice{Kind: noticeAsk, Comm: g.id, Rank: g.rank})
	if err != nil {
		return nil
	}
	for _, r := range ranks {
		g.world.fab.Control(g.members[r], payload)
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	for {
		select {
		case <-news:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if len(b.seqs) >= len(ranks) || ctx.Err() != nil {
			answers := make(map[int]uint64, len(b.seqs))
			for r, s := range b.seqs {
				answers[r] = s
			}
			b.mu.Unlock()
			return answers
		}
		b.mu.Unlock()
	}
}
