package native

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
)

// What ranks ask each other when one has waited in vain.

// refusal is the last collective that this rank has refused. It breaks nothing: the caller may
// correct the call, and then the others, who wait, are served. If it doesn't, their time-outs say why.
type refusal struct {
	mu   sync.Mutex
	seq  uint64 // the number that it would have had
	text string
}

// Refused implements backend.Refuser.
func (g *group) Refused(op string, why error) {
	text := why.Error()
	var bad *backend.InvalidArgumentError
	var canceled *backend.CanceledError
	switch {
	case errors.As(why, &bad):
		text = bad.Detail
	case errors.As(why, &canceled):
		text = fmt.Sprintf("its context had ended: %v", canceled.Err)
	}
	r := &g.refusal
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq, r.text = g.seq+1, op+": "+text
}

func (r *refusal) get() (seq uint64, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq, r.text
}

// statusBoard collects answers to the question which operation the others are in.
type statusBoard struct {
	mu      sync.Mutex
	answers map[int]notice
	news    chan struct{}
}

func (b *statusBoard) answer(rank int, n notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answers == nil {
		return // nobody asked
	}
	b.answers[rank] = n
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
			if seq, _ := g.space.Arrived(m); seq >= op.Seq {
				e.Arrived = append(e.Arrived, r)
				continue
			}
		}
		ask = append(ask, r)
	}
	answers := g.ask(ask)
	for _, r := range ask {
		said, ok := answers[r]
		switch {
		case g.localIndex[r] >= 0: // its flag said so
			e.Missing = append(e.Missing, r)
		case !ok:
			e.Unknown = append(e.Unknown, r)
			continue
		case said.Seq >= op.Seq:
			e.Arrived = append(e.Arrived, r)
			continue
		default:
			e.Missing = append(e.Missing, r)
		}
		if ok && said.RefusedSeq == op.Seq {
			if e.Refused == nil {
				e.Refused = map[int]string{}
			}
			e.Refused[r] = said.Text
		}
	}
	slices.Sort(e.Arrived)
	return e
}

// ask collects the answers of ranks; who can't be asked, or doesn't answer in time, is left out.
func (g *group) ask(ranks []int) map[int]notice {
	b := &g.status
	b.mu.Lock()
	b.answers, b.news = map[int]notice{}, make(chan struct{}, 1)
	news := b.news
	b.mu.Unlock()
	payload := notice{Kind: noticeAsk, Comm: g.id, Rank: g.rank}.encode()
	asked := 0
	for _, r := range ranks {
		if g.world.fab.Control(g.members[r], payload) == nil {
			asked++
		}
	}
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	for waiting := true; ; {
		b.mu.Lock()
		if len(b.answers) >= asked || !waiting {
			answers := b.answers
			b.answers = nil
			b.mu.Unlock()
			return answers
		}
		b.mu.Unlock()
		select {
		case <-news:
		case <-timer.C:
			waiting = false
		}
	}
}
