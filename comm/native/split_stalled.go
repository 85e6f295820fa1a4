package native

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
)

// A rank that has finished a split's exchange of lists opens the memory that ranks of its host share in the new
// communicator. The others may still be in the exchange, and wait for ranks that cause the delay. So a rank whose wait
// for the opening times out asks them for which ranks they wait, asks these in turn, and so on.

// splitOrigin is the split that a new communicator comes from: operation seq of parent has exchanged the lists.
type splitOrigin struct {
	parent *group
	seq    uint64
	start  time.Time
}

// A stallError names the ranks that have kept a communicator's shared memory from being opened. Ranks are the fabric's.
type stallError struct {
	err     error
	missing []int          // at which the chains of waits end
	unknown []int          // without an answer
	doing   map[int]string // of those that are missing, what they do
}

func (e *stallError) Error() string { return e.err.Error() }
func (e *stallError) Unwrap() error { return e.err }

// attend puts the ranks, translated, into an attendance.
func (e *stallError) attend(a *backend.Attendance, rankOf func(peer int) int) {
	for _, p := range e.missing {
		a.Missing = append(a.Missing, rankOf(p))
		base.Note(&a.Doing, rankOf(p), e.doing[p])
	}
	for _, p := range e.unknown {
		a.Unknown = append(a.Unknown, rankOf(p))
	}
	slices.Sort(a.Missing)
	slices.Sort(a.Unknown)
}

// outside reports whether a rank that is named isn't a member of a communicator.
func (e *stallError) outside(rankOf func(peer int) int) bool {
	return slices.ContainsFunc(slices.Concat(e.missing, e.unknown), func(p int) bool { return rankOf(p) < 0 })
}

// failure is the split's error, on a rank that couldn't make its part of the new communicator. If what was to be split
// has broken while this rank asked, that's the cause.
func (o *splitOrigin) failure(ctx context.Context, err error) error {
	at := o.parent.In("split")
	if _, stalled := errors.AsType[*stallError](err); stalled && o.parent.Raised() {
		return o.parent.Err(at)
	}
	return unopened(ctx, o.start, at, o.parent.rankOf, err)
}

// explain finds out why members haven't opened their part, if that's what err says.
func (o *splitOrigin) explain(err error) error {
	absent, ok := errors.AsType[*fabric.AbsentError](err)
	if !ok {
		return err
	}
	g := o.parent
	var from []int
	for _, p := range absent.Peers {
		if r := g.rankOf(p); r >= 0 {
			from = append(from, r)
		}
	}
	c := waitChain{group: g, seq: o.seq, waiter: map[int]int{g.rank: g.rank}, doing: map[int]string{}}
	c.follow(from)
	e := &stallError{err: err, doing: map[int]string{}}
	for _, r := range c.ends {
		e.missing = append(e.missing, g.members[r])
		e.doing[g.members[r]] = c.doing[r]
	}
	for _, r := range c.silent {
		e.unknown = append(e.unknown, g.members[r])
	}
	return e
}

// A waitChain finds the ranks at which waits in an operation end.
type waitChain struct {
	*group
	seq    uint64
	waiter map[int]int // of each rank that was, or is to be, asked: a rank that waits for it
	ends   []int       // ranks that wait for none that is in the operation
	silent []int       // ranks that don't answer
	doing  map[int]string
}

// follow asks the ranks from, for which this rank waits although it has ended the operation, and then the ranks for
// which they wait. If it finds no end, these ranks count as the ends. It stops early when the communicator breaks.
func (c *waitChain) follow(from []int) {
	question := c.newNotice(noticeAsk)
	question.About, question.Waits = c.seq, true
	end := time.Now().Add(askTimeout)
	for _, r := range from {
		c.waiter[r] = r
	}
	for next := from; len(next) > 0 && time.Now().Before(end) && !c.Raised(); {
		answers := c.pose(question, next, time.Until(end), c.Broken())
		var further []int
		for _, r := range next {
			said, ok := answers[r]
			c.doing[r] = said.Doing
			switch {
			case !ok:
				c.silent = append(c.silent, r)
			case said.Ended:
				c.endAt(c.waiter[r])
			case len(said.Awaits) == 0:
				c.endAt(r)
			default:
				further = append(further, c.further(r, said.Awaits)...)
			}
		}
		next = further
	}
	if len(c.ends)+len(c.silent) == 0 {
		c.ends = from
	}
}

// further returns those of the ranks for which a rank waits that weren't asked yet.
func (c *waitChain) further(r int, awaits []int) (ranks []int) {
	for _, a := range awaits {
		if a == c.rank { // which has ended the operation
			c.endAt(r)
		} else if _, known := c.waiter[a]; !known && a >= 0 && a < len(c.members) {
			c.waiter[a] = r
			ranks = append(ranks, a)
		}
	}
	return ranks
}

func (c *waitChain) endAt(r int) {
	if !slices.Contains(c.ends, r) {
		c.ends = append(c.ends, r)
	}
}

// awaited is for which ranks the operation under way waits, as its own goroutine has said when it was asked.
type awaited struct {
	mu    sync.Mutex
	seq   uint64
	ranks []int
	news  chan struct{} // closed when the goroutine says so; nil if it isn't asked
}

// awaitsTime bounds how long the goroutine of an operation may take to say for which ranks it waits. One that doesn't
// wait doesn't say it.
const awaitsTime = 100 * time.Millisecond

// awaits returns the ranks for which this rank waits in an operation; none if it doesn't wait in it.
func (g *group) awaits(seq uint64) []int {
	if g.HasEnded(seq) {
		return nil
	}
	a := &g.awaited
	a.mu.Lock()
	if a.news == nil {
		a.news = make(chan struct{})
	}
	news := a.news
	a.mu.Unlock()
	g.waiter.Prod()
	select {
	case <-news:
	case <-time.After(awaitsTime):
		return nil
	case <-g.Broken():
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seq != seq {
		return nil
	}
	return a.ranks
}

// reportAwaited says for which ranks the operation under way waits: for their messages, to take messages, or for their
// flags. It runs on the operation's goroutine, in a wait.
func (g *group) reportAwaited() {
	a := &g.awaited
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news == nil {
		return
	}
	var receives, sends []int
	for k, s := range g.posted {
		switch peer := int(s.peer); {
		case g.msgs[k].Done() || peer == g.rank:
		case s.kind == plan.Send:
			sends = append(sends, peer)
		default:
			receives = append(receives, peer)
		}
	}
	a.seq, a.ranks = g.seq, receives
	if len(receives) == 0 { // which are waited for first
		a.ranks = sends
	}
	if len(a.ranks) == 0 && g.space != nil {
		if m := g.space.Awaited(); m >= 0 {
			a.ranks = []int{g.local[m]}
		}
	}
	close(a.news)
	a.news = nil
}
