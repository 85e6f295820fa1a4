package fault

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

func init() { fabric.Register("fault", fabric.Driver{Open: open}) }

func open(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
	options := maps.Clone(c.Options)
	inner, script := options["inner"], options["script"]
	delete(options, "inner")
	delete(options, "script")
	if inner == "" {
		inner = "tcp"
	}
	s, err := ParseScript(script)
	if err != nil {
		return nil, err
	}
	c.Options = options
	f, err := fabric.Open(ctx, inner, c)
	if err != nil {
		return nil, err
	}
	wrapped, faults := Wrap(f, s.Rules...)
	faults.Seed(s.Seed)
	return wrapped, nil
}

// Faults is the handle of a wrapped fabric. Safe for concurrent use.
type Faults struct {
	inner fabric.Messenger
	bare  fabric.Fabric // which inner may be around

	mu      sync.Mutex
	rules   []Rule
	seen    []int // messages that each rule applied to
	broken  map[Action]int
	rng     *rand.Rand
	lines   map[int]*heldMessages // to peers with delayed messages
	posted  map[*fabric.Msg]*receive
	copies  []altered // which their senders take for sent
	handler fabric.Handler
	closed  bool
	timers  sync.WaitGroup
	onBreak func(Action)
	freezer freezer

	cut sync.Map // *fabric.PeerError by peer; apart from the lock, because handlers look at it
}

func (x *Faults) cutOff(peer int) error {
	if err, ok := x.cut.Load(peer); ok {
		return err.(error)
	}
	return nil
}

// OnBreak has f called each time a rule breaks a message, just before it does. f must not call a method of x.
func (x *Faults) OnBreak(f func(Action)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.onBreak = f
}

// heldMessages are the messages to one peer that are held back.
type heldMessages struct {
	held    []*fabric.Msg
	stalled bool
	timer   *time.Timer
}

// Wrap returns f with faults. If f is a Sharer or Placer, so is what it returns.
func Wrap(f fabric.Fabric, rules ...Rule) (fabric.Messenger, *Faults) {
	inner := transport.Extend(f)
	x := &Faults{inner: inner, bare: f, rules: rules, seen: make([]int, len(rules)), broken: map[Action]int{},
		rng:   rand.New(rand.NewPCG(0, 0)),
		lines: map[int]*heldMessages{}, posted: map[*fabric.Msg]*receive{}}
	w := &wrapped{inner, x}
	s, sharer := f.(fabric.Sharer)
	p, placer := f.(fabric.Placer)
	switch {
	case sharer && placer:
		return struct {
			fabric.Messenger
			fabric.Sharer
			fabric.Placer
		}{w, s, p}, x
	case sharer:
		return struct {
			fabric.Messenger
			fabric.Sharer
		}{w, s}, x
	}
	return w, x
}

// Seed makes what is random repeatable.
func (x *Faults) Seed(seed uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rng = rand.New(rand.NewPCG(seed, 0))
}

// Broken returns how many messages an action was done to.
func (x *Faults) Broken(a Action) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.broken[a]
}

// Cut makes this rank lose a peer: its handler is told, what waits for the peer
// fails, and nothing gets through to it any more. The peer notices nothing unless
// its side is cut, too.
func (x *Faults) Cut(peer int, cause error) {
	err := &fabric.PeerError{Peer: peer, Err: cause}
	if _, cut := x.cut.LoadOrStore(peer, err); cut {
		return
	}
	x.mu.Lock()
	h := x.handler
	held := x.take(peer)
	lost := map[*fabric.Msg]*receive{}
	for m, r := range x.posted {
		if r.from != peer {
			continue
		}
		r.canceled = make(chan struct{})
		if !r.posting { // else Recv sees to it: the fabric can't take back what it hasn't got
			lost[m] = r
		}
	}
	x.mu.Unlock()
	for _, m := range held {
		m.Complete(0, peer, err)
	}
	for m, r := range lost { // without the lock: it takes as long as the fabric is at work on m
		x.inner.Cancel(m)
		close(r.canceled) // Wait says why
	}
	if h != nil {
		h.PeerLost(peer, err)
	}
}

// receive is one that was posted and not waited for yet.
type receive struct {
	from    int
	posting bool // Recv is about to hand it to the fabric
	// Nil, or closed once Cut has canceled the message, which may not be used again before.
	canceled chan struct{}
}

// end forgets a receive, and returns it once Cut is no longer canceling it. It returns nil if m is
// no receive.
func (x *Faults) end(m *fabric.Msg) *receive {
	x.mu.Lock()
	r := x.posted[m]
	delete(x.posted, m)
	x.mu.Unlock()
	if r != nil && r.canceled != nil {
		<-r.canceled
	}
	return r
}

// take empties a peer's line. The caller holds the lock.
func (x *Faults) take(peer int) []*fabric.Msg {
	l := x.lines[peer]
	if l == nil {
		return nil
	}
	delete(x.lines, peer)
	if l.timer != nil && l.timer.Stop() {
		x.timers.Done()
	}
	return l.held
}

// Release sends what is held back for a peer.
func (x *Faults) Release(peer int) {
	x.mu.Lock()
	l := x.lines[peer]
	if l != nil {
		l.stalled = false
	}
	x.mu.Unlock()
	if l != nil {
		x.drain(peer, l)
	}
}

// drain sends a line's messages, and ends it when there are no more: until then new
// ones queue up behind.
func (x *Faults) drain(peer int, l *heldMessages) {
	for {
		x.mu.Lock()
		if x.lines[peer] != l || l.stalled {
			x.mu.Unlock()
			return
		}
		held := l.held
		l.held = nil
		if len(held) == 0 {
			x.take(peer)
		}
		x.mu.Unlock()
		if len(held) == 0 {
			return
		}
		for _, m := range held {
			x.inner.Send(m)
		}
	}
}

// wrapped is the fabric that applies the faults.
type wrapped struct {
	fabric.Messenger
	x *Faults
}

// Handle implements fabric.Announcer.
func (w *wrapped) Handle(h fabric.Handler) {
	w.x.mu.Lock()
	w.x.handler = h
	w.x.mu.Unlock()
	w.Messenger.Handle(filter{h, w.x})
}

// filter drops repeated losses of peers that were cut, and holds events back from a frozen rank.
type filter struct {
	fabric.Handler
	x *Faults
}

// PeerLost implements fabric.Handler.
func (f filter) PeerLost(peer int, err error) {
	f.x.freezer.event(func() {
		if f.x.cutOff(peer) == nil {
			f.Handler.PeerLost(peer, err)
		}
	})
}

// PeerLeft implements fabric.Handler.
func (f filter) PeerLeft(peer int) {
	f.x.freezer.event(func() {
		if f.x.cutOff(peer) == nil {
			f.Handler.PeerLeft(peer)
		}
	})
}

// Mismatch implements fabric.Handler.
func (f filter) Mismatch(peer int, key fabric.Key, local, remote fabric.Desc) {
	f.x.freezer.event(func() { f.Handler.Mismatch(peer, key, local, remote) })
}

// Control implements fabric.Handler: nothing comes from a peer that was cut.
func (f filter) Control(peer int, payload []byte) {
	f.x.freezer.event(func() {
		if f.x.cutOff(peer) == nil {
			f.Handler.Control(peer, payload)
		}
	})
}

// Send implements fabric.Fabric.
func (w *wrapped) Send(m *fabric.Msg) {
	x := w.x
	x.Touch()
	x.mu.Lock()
	r := x.choose(m)
	x.mu.Unlock()
	if r != nil && r.Do == Cut {
		x.Cut(m.Peer, fmt.Errorf("cut by a rule after %d messages", r.After))
	}
	if err := x.cutOff(m.Peer); err != nil {
		m.Complete(0, m.Peer, err)
		return
	}
	if r == nil {
		x.pass(m)
		return
	}
	switch r.Do {
	case Drop:
		m.Complete(m.Len, m.Peer, nil)
	case Truncate, Corrupt, Mislabel:
		x.pass(x.alter(m, r.Do))
		m.Complete(m.Len, m.Peer, nil)
	case Duplicate:
		x.pass(x.alter(m, Duplicate))
		x.pass(m)
	default:
		x.hold(m.Peer, r)
		x.pass(m)
	}
}

// choose returns the rule that breaks m, if any. The caller holds the lock.
func (x *Faults) choose(m *fabric.Msg) *Rule {
	var found *Rule
	for i := range x.rules {
		r := &x.rules[i]
		if !r.matches(m) {
			continue
		}
		x.seen[i]++
		n := x.seen[i] - r.After
		lucky := r.Chance > 0 && x.rng.Float64() >= r.Chance
		if found == nil && n > 0 && (r.Count == 0 || n <= r.Count) && !lucky {
			found = r
			x.broken[r.Do]++
			if x.onBreak != nil {
				x.onBreak(r.Do)
			}
		}
	}
	return found
}

// pass sends m, or puts it in line.
func (x *Faults) pass(m *fabric.Msg) {
	x.mu.Lock()
	if l := x.lines[m.Peer]; l != nil {
		l.held = append(l.held, m)
		x.mu.Unlock()
		return
	}
	x.mu.Unlock()
	x.inner.Send(m)
}

// hold makes a peer's messages wait.
func (x *Faults) hold(peer int, r *Rule) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	l := x.lines[peer]
	if l == nil {
		l = &heldMessages{}
		x.lines[peer] = l
	}
	if r.Do == Stall {
		l.stalled = true
		return
	}
	if !l.stalled && l.timer == nil {
		x.timers.Add(1)
		l.timer = time.AfterFunc(r.Delay, func() {
			defer x.timers.Done()
			x.drain(peer, l)
		})
	}
}

// altered is a copy of a message on its way, and what waits for it.
type altered struct {
	m *fabric.Msg
	w *fabric.Waiter
}

// alter returns a copy of m, with a buffer of its own.
func (x *Faults) alter(m *fabric.Msg, do Action) *fabric.Msg {
	n := m.Len
	if do == Truncate {
		n /= 2
	}
	buf := make([]byte, n+1)[:n] // so that there's an address even if it's empty
	copy(buf, m.Bytes())
	g := &fabric.Msg{Peer: m.Peer, Key: m.Key, Desc: m.Desc, Buf: unsafe.Pointer(unsafe.SliceData(buf)), Len: n}
	w := fabric.NewWaiter(fabric.NewAbort())
	g.Reset(w)
	x.mu.Lock()
	x.copies = append(x.copies, altered{g, w})
	x.mu.Unlock()
	if do == Corrupt && n > 0 {
		x.mu.Lock()
		bit := x.rng.IntN(8 * n)
		x.mu.Unlock()
		buf[bit/8] ^= 1 << (bit % 8)
	}
	if do == Mislabel {
		x.mu.Lock()
		bit := x.rng.IntN(8 * len(g.Desc))
		x.mu.Unlock()
		g.Desc[bit/8] ^= 1 << (bit % 8)
	}
	return g
}

// Recv implements fabric.Fabric.
func (w *wrapped) Recv(m *fabric.Msg) {
	x := w.x
	x.Touch()
	x.mu.Lock()
	if err := x.cutOff(m.Peer); err != nil {
		x.mu.Unlock()
		m.Complete(0, m.Peer, err)
		return
	}
	r := &receive{from: m.Peer, posting: true}
	x.posted[m] = r
	x.mu.Unlock()
	w.Messenger.Recv(m)
	x.mu.Lock()
	r.posting = false
	cut := r.canceled
	x.mu.Unlock()
	if cut != nil { // meanwhile
		x.inner.Cancel(m)
		close(cut)
	}
}

// Wait implements fabric.Fabric.
func (w *wrapped) Wait(m *fabric.Msg, by *fabric.Waiter) error {
	err := w.Messenger.Wait(m, by)
	w.x.Touch()
	if !m.Done() {
		return err
	}
	if r := w.x.end(m); r != nil && m.Err == fabric.ErrCanceled {
		if cut := w.x.cutOff(r.from); cut != nil {
			m.Err = cut
		}
	}
	return m.Err
}

// Cancel implements fabric.Fabric.
func (w *wrapped) Cancel(m *fabric.Msg) {
	x := w.x
	x.end(m)
	x.mu.Lock()
	for _, l := range x.lines {
		if i := slices.Index(l.held, m); i >= 0 {
			l.held = slices.Delete(l.held, i, i+1)
			x.mu.Unlock()
			m.Complete(0, m.Peer, fabric.ErrCanceled)
			return
		}
	}
	x.mu.Unlock()
	w.Messenger.Cancel(m)
}

// Control implements fabric.Messenger.
func (w *wrapped) Control(peer int, payload []byte) error {
	w.x.Touch()
	if err := w.x.cutOff(peer); err != nil {
		return err
	}
	return w.Messenger.Control(peer, payload)
}

// copyGrace bounds how long Close waits for altered messages to be on their way.
const copyGrace = time.Second

// finishCopies sees that altered messages are on their way, as all are that their senders take for sent.
func (x *Faults) finishCopies(ctx context.Context) {
	x.mu.Lock()
	copies := x.copies
	x.copies = nil
	x.mu.Unlock()
	for _, c := range copies {
		c.w.Begin(ctx, copyGrace)
		if x.inner.Wait(c.m, c.w); !c.m.Done() {
			x.inner.Cancel(c.m)
		}
	}
}

// Close implements fabric.Fabric. Messages that are held back fail.
func (w *wrapped) Close(ctx context.Context) error {
	x := w.x
	x.Touch()
	x.mu.Lock()
	x.closed = true
	var held []*fabric.Msg
	for peer := range x.lines {
		held = append(held, x.take(peer)...)
	}
	x.mu.Unlock()
	for _, m := range held {
		m.Complete(0, m.Peer, fabric.ErrClosed)
	}
	x.timers.Wait()
	x.finishCopies(ctx)
	return w.Messenger.Close(ctx)
}
