package transport

import (
	"sync"

	"github.com/chorus-comms/chorus/fabric"
)

// Arrival is the news of a message that a peer has sent. It's a part of whatever the fabric keeps of the message, which
// is its Via.
type Arrival struct {
	From int
	Key  fabric.Key
	Desc fabric.Desc
	Len  int // bytes
	Via  Fetcher

	order uint64
}

// Fetcher is the transport behind an Arrival. Fetch moves the payload into the
// receive that matched and completes it, now or later; with a nil receive it
// discards the payload. It's called once per arrival, without locks held; a is
// the transport's again. It also checks that the message fits: *TruncatedError.
type Fetcher interface {
	Fetch(a *Arrival, m *fabric.Msg)
}

// Matcher pairs posted receives with arrivals, each in order, for all transports
// of one rank. It's what the fabrics of this module share. Safe for concurrent use.
type Matcher struct {
	mu       sync.Mutex
	size     int
	posted   shelf[matchKey, *fabric.Msg]
	anyone   shelf[fabric.Key, *fabric.Msg] // receives from AnySource
	arrived  shelf[matchKey, *Arrival]
	waiting  int // arrivals in arrived
	current  map[uint32]*history
	handler  fabric.Handler
	lost     map[int]error // *PeerError of the peers that died or left
	first    error         // of them, the first
	controls []control     // payloads that came before there was a handler
	closed   error
	order    uint64 // of posts and arrivals
}

type matchKey struct {
	from int
	key  fabric.Key
}

// A history is what a communicator of this rank has announced lately. A rank that receives nothing
// may be operations ahead when a message comes which shows that the ranks disagreed.
type history struct {
	tags  [remembered]uint64 // 0: none yet; operations count from 1
	descs [remembered]fabric.Desc
	last  uint64 // the tag that was announced last
}

const remembered = 256

func (h *history) add(tag uint64, desc *fabric.Desc) {
	h.tags[tag%remembered], h.descs[tag%remembered], h.last = tag, *desc, tag
}

// has reports whether operation tag is one of those.
func (h *history) has(tag uint64) bool { return h != nil && tag != 0 && h.tags[tag%remembered] == tag }

// differs reports whether operation tag was another one here than desc, of whose messages one has come for which there
// is no receive. It returns the zero Desc for an operation that isn't remembered: it has ended without the message.
func (h *history) differs(tag uint64, desc *fabric.Desc) (local fabric.Desc, yes bool) {
	switch {
	case h.has(tag):
		local = h.descs[tag%remembered]
		return local, local != *desc
	case h == nil || tag == 0:
		return local, false
	}
	return local, tag+remembered <= h.last
}

// NewMatcher returns a matcher for a rank in a world of size ranks.
func NewMatcher(size int) *Matcher {
	return &Matcher{size: size, current: map[uint32]*history{}, lost: map[int]error{}}
}

// Post posts a receive. If its message has arrived already, it is fetched.
func (x *Matcher) Post(m *fabric.Msg) {
	x.mu.Lock()
	err := x.closed
	x.order++
	m.Order = x.order
	from := m.Peer
	if from == fabric.AnySource {
		from = x.firstArrived(m.Key)
	}
	if m.Source = from; err == nil && from != fabric.AnySource {
		k := matchKey{from, m.Key}
		if q := x.arrived.queues[k]; q != nil {
			a := x.arrived.pop(k, q)
			x.waiting--
			h := x.handler
			x.mu.Unlock()
			x.deliver(a, m, h)
			return
		}
		if err = x.lost[from]; err == nil {
			x.posted.at(k).Push(m)
		}
	} else if err == nil {
		if len(x.lost) > 0 && len(x.lost) >= x.size-1 {
			err = x.first
		} else {
			x.anyone.at(m.Key).Push(m)
		}
	}
	x.mu.Unlock()
	if err != nil {
		m.Complete(0, from, err)
	}
}

// Arrive takes the news of a message. If a receive is posted for it, a.Via
// fetches it into that at once; otherwise when one is.
func (x *Matcher) Arrive(a *Arrival) {
	x.mu.Lock()
	h, over := x.handler, x.closed != nil
	x.order++
	a.order = x.order
	if m := x.takePosted(a); m != nil {
		x.mu.Unlock()
		x.deliver(a, m, h)
		return
	}
	from, key, remote := a.From, a.Key, a.Desc
	var local fabric.Desc
	mismatch := false
	if h != nil && key.Class == fabric.Collective {
		local, mismatch = x.current[key.Comm].differs(key.Tag, &remote)
	}
	if !over {
		x.waiting++
		x.arrived.at(matchKey{from, key}).Push(a)
	}
	x.mu.Unlock()
	if over {
		a.Via.Fetch(a, nil)
	}
	if mismatch { // perhaps in the last operation before the end
		h.Mismatch(from, key, local, remote)
	}
}

// Return takes back the news of a message whose receive, m, was withdrawn while the payload was fetched, and isn't
// complete yet. a may be another Arrival than the one that m matched; From, Key, Desc and Len must be the same. The
// next receive that matches gets it, before all messages that came later.
func (x *Matcher) Return(a *Arrival, m *fabric.Msg) {
	x.mu.Lock()
	a.order = m.Order
	if x.closed != nil {
		x.mu.Unlock()
		a.Via.Fetch(a, nil)
		return
	}
	if m := x.takePosted(a); m != nil {
		h := x.handler
		x.mu.Unlock()
		x.deliver(a, m, h)
		return
	}
	x.waiting++
	x.arrived.at(matchKey{a.From, a.Key}).Insert(a, func(b *Arrival) bool { return b.order >= a.order })
	x.mu.Unlock()
}

// deliver hands a matched arrival to its transport, unless the two belong to
// different operations.
func (x *Matcher) deliver(a *Arrival, m *fabric.Msg, h fabric.Handler) {
	if a.Key.Class == fabric.Collective && a.Desc != m.Desc {
		err := &fabric.MismatchError{Peer: a.From, Local: m.Desc, Remote: a.Desc}
		key := a.Key
		a.Via.Fetch(a, nil)
		if h != nil {
			h.Mismatch(err.Peer, key, err.Local, err.Remote)
		}
		m.Complete(0, err.Peer, err)
		return
	}
	m.Sent, m.Order = a.Desc, a.order
	a.Via.Fetch(a, m)
}

// Source returns whose message a receive has matched, which may not be done yet; AnySource while it hasn't matched any.
func (x *Matcher) Source(m *fabric.Msg) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return m.Source
}

// takePosted removes the receive that a matches: the earlier posted of those for
// its sender and those for anyone.
func (x *Matcher) takePosted(a *Arrival) *fabric.Msg {
	k := matchKey{a.From, a.Key}
	q, any := x.posted.queues[k], x.anyone.queues[a.Key]
	switch {
	case q == nil && any == nil:
		return nil
	case q == nil || any != nil && any.First().Order < q.First().Order:
		m := x.anyone.pop(a.Key, any)
		m.Source = a.From
		return m
	}
	return x.posted.pop(k, q)
}

// firstArrived returns the sender of the oldest waiting message under key, or AnySource.
func (x *Matcher) firstArrived(key fabric.Key) int {
	if x.waiting == 0 {
		return fabric.AnySource
	}
	best, order := fabric.AnySource, uint64(0)
	for from := range x.size {
		q := x.arrived.queues[matchKey{from, key}]
		if q != nil && (best == fabric.AnySource || q.First().order < order) {
			best, order = from, q.First().order
		}
	}
	return best
}

// Withdraw removes a posted receive and completes it with the error. It reports
// false if the receive is no longer posted: its message is being fetched, or it's done.
func (x *Matcher) Withdraw(m *fabric.Msg, err error) bool {
	x.mu.Lock()
	var found bool
	if m.Peer == fabric.AnySource {
		found = x.anyone.remove(m.Key, m)
	} else {
		found = x.posted.remove(matchKey{m.Peer, m.Key}, m)
	}
	x.mu.Unlock()
	if found {
		m.Complete(0, m.Peer, err)
	}
	return found
}

// Announce says which collective operation a communicator of this rank is in, so
// that a message of another operation under the same number is reported even if
// no receive is posted for it.
func (x *Matcher) Announce(comm uint32, tag uint64, desc *fabric.Desc) {
	x.mu.Lock()
	said := x.current[comm]
	if said == nil {
		said = new(history)
		x.current[comm] = said
	}
	said.add(tag, desc)
	if x.waiting == 0 {
		x.mu.Unlock()
		return
	}
	key := fabric.Key{Comm: comm, Class: fabric.Collective, Tag: tag}
	h := x.handler
	for from := range x.size {
		if q := x.arrived.queues[matchKey{from, key}]; q != nil && q.First().Desc != *desc {
			remote := q.First().Desc
			x.mu.Unlock()
			if h != nil {
				h.Mismatch(from, key, *desc, remote)
			}
			return
		}
	}
	x.mu.Unlock()
}

// Announced returns what operation tag of a communicator was announced as, if it's one of the last 256.
func (x *Matcher) Announced(comm uint32, tag uint64) (fabric.Desc, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.current[comm]
	if !h.has(tag) {
		return fabric.Desc{}, false
	}
	return h.descs[tag%remembered], true
}

// Retract takes back arrivals that nothing was posted for, if their sender has
// withdrawn them, and returns them. pick is called with the matcher locked.
func (x *Matcher) Retract(pick func(*Arrival) bool) []*Arrival {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := x.arrived.take(func(_ matchKey, a *Arrival) bool { return pick(a) })
	x.waiting -= len(found)
	return found
}

// Forget drops what is known of a communicator that is no more.
func (x *Matcher) Forget(comm uint32) {
	x.mu.Lock()
	delete(x.current, comm)
	x.mu.Unlock()
	for _, a := range x.Retract(func(a *Arrival) bool { return a.Key.Comm == comm }) {
		a.Via.Fetch(a, nil)
	}
}

// Close completes every posted receive with the error, drops every arrival and
// refuses what comes later.
func (x *Matcher) Close(err error) {
	x.mu.Lock()
	if x.closed != nil {
		x.mu.Unlock()
		return
	}
	x.closed = err
	fail := x.posted.take(func(matchKey, *fabric.Msg) bool { return true })
	fail = append(fail, x.anyone.take(func(fabric.Key, *fabric.Msg) bool { return true })...)
	x.mu.Unlock()
	for _, m := range fail {
		m.Complete(0, m.Peer, err)
	}
	for _, a := range x.Retract(func(*Arrival) bool { return true }) {
		a.Via.Fetch(a, nil)
	}
}

// Closed reports whether Close was called.
func (x *Matcher) Closed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed != nil
}
