package members

import (
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// Stalled asks the ranks from for which ranks they wait in an operation that this rank has ended, then asks these, and
// so on. It returns the ranks at which the waits end, with what they do, and those that don't answer.
func (g *Group) Stalled(seq uint64, from []int) (ends, silent []int, doing map[int]string) {
	c := waitChain{Group: g, seq: seq, waiter: map[int]int{g.Rank: g.Rank}, doing: map[int]string{}}
	c.follow(from)
	return c.ends, c.silent, c.doing
}

// A waitChain finds the ranks at which waits in an operation end.
type waitChain struct {
	*Group
	seq    uint64
	waiter map[int]int // of each rank that was, or is to be, asked: a rank that waits for it
	ends   []int       // ranks that wait for none that is in the operation
	silent []int       // ranks that don't answer
	doing  map[int]string
}

// follow asks the ranks from, for which this rank waits although it has ended the operation, and then the ranks for
// which they wait. If it finds no end, these ranks count as the ends. It stops early when the communicator breaks.
func (c *waitChain) follow(from []int) {
	question := c.NewNotice(askKind)
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
		if a == c.Rank { // which has ended the operation
			c.endAt(r)
		} else if _, known := c.waiter[a]; !known && a >= 0 && a < len(c.Members) {
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
func (g *Group) awaits(seq uint64) []int {
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
	g.Waits.Prod()
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
func (g *Group) reportAwaited() {
	a := &g.awaited
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news == nil {
		return
	}
	var receives, sends []int
	g.own.Posted(func(m *fabric.Msg, rank int, comes bool) {
		switch {
		case m.Done() || rank == g.Rank:
		case comes:
			receives = append(receives, rank)
		default:
			sends = append(sends, rank)
		}
	})
	a.seq, _, _, _ = g.own.UnderWay()
	a.ranks = receives
	if len(receives) == 0 { // which are waited for first
		a.ranks = sends
	}
	if len(a.ranks) == 0 && g.Space != nil {
		if m := g.Space.Awaited(); m >= 0 {
			a.ranks = []int{g.Local[m]}
		}
	}
	close(a.news)
	a.news = nil
}
