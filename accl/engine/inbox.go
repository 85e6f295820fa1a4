package engine

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
)

// inbox is what has come from other engines and no call has taken yet: eager messages, each in an RX buffer while there
// are any, and the notifications of rendezvous.
type inbox struct {
	engine *Engine

	mu      sync.Mutex
	closed  bool
	buffers int
	free    []int // RX buffers
	pending []*arrival
	waiters []*waiter // in the order in which they came
}

// arrival is a message.
type arrival struct {
	abi.Header
	from   uint32 // session
	buffer int    // RX buffer; negative if it's in none
	bytes  []byte // then, the payload
	status abi.Status
}

// want says which message a call waits for.
type want struct {
	comm    *communicator
	kind    abi.MsgType
	src     int            // rank; negative: those of from
	from    func(int) bool // which ranks may have sent it
	seq     uint32         // of an eager message
	tag     uint32         // of a notification
	addr    uint64         // that a RendezvousDone is about
	purpose abi.Scenario   // of a notification
}

// waiter is a call that waits.
type waiter struct {
	want
	since time.Time
	got   *arrival
	ch    chan struct{}
	came  chan struct{} // closed when it's there, or the call is dropped, if the caller waits for that
}

// wake ends the wait of a caller. The inbox's lock is held.
func (w *waiter) wake() {
	if w.came != nil {
		close(w.came)
		w.came = nil
	}
}

// purpose is what scenario the two sides of a call have in common.
func purpose(s abi.Scenario) abi.Scenario {
	if s == abi.Recv {
		return abi.Send
	}
	return s
}

func (w *want) matches(a *arrival) bool {
	src := int(a.Src)
	switch {
	case a.MsgType != w.kind || src < 0 || src >= w.comm.size() || a.from != w.comm.Ranks[src].Session,
		a.CommID != 0 && a.CommID != w.comm.id,
		w.src >= 0 && src != w.src, w.src < 0 && !w.from(src):
		return false
	case w.kind == abi.Eager:
		return a.Seq == w.seq
	case a.Scenario != 0 && a.Scenario != w.purpose,
		w.kind == abi.RendezvousDone && a.Addr != w.addr:
		return false
	}
	return sameTag(a.Tag, w.tag)
}

func sameTag(a, b uint32) bool { return a == b || a == abi.TagAny || b == abi.TagAny }

// enqueue puts n RX buffers to use.
func (x *inbox) enqueue(n uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.buffers, x.free = int(min(n, (abi.ConfigEnd-abi.RXDescriptors)/(4*abi.RXWords))), nil
	for i := range x.buffers {
		x.free = append(x.free, i)
		x.engine.exch.store(abi.RXDescriptorAt(i), uint32(abi.RXEnqueued))
	}
}

func (x *inbox) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.buffers {
		x.engine.exch.store(abi.RXDescriptorAt(i), uint32(abi.RXIdle))
	}
	x.buffers, x.free, x.pending = 0, nil, nil
}

// Receive takes a message of the engine of a session. It waits for no call.
func (e *Engine) Receive(from uint32, h *abi.Header, payload []byte) {
	if h.MsgType == abi.Eager {
		if dest, ok := streamOf(h); ok {
			e.out.push(dest, payload)
			return
		}
	}
	a := &arrival{Header: *h, from: from, buffer: -1}
	x := &e.inbox
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	if h.MsgType == abi.Eager {
		x.land(a, payload)
	}
	for i, w := range x.waiters {
		if w.matches(a) {
			x.waiters = slices.Delete(x.waiters, i, i+1)
			w.got = a
			w.ch <- struct{}{}
			w.wake()
			return
		}
	}
	x.pending = append(x.pending, a)
}

// land puts a message into an RX buffer. With none free it stays in the link, so to speak, which is memory of its own.
func (x *inbox) land(a *arrival, payload []byte) {
	e := x.engine
	if x.buffers > 0 && len(payload) > int(e.exch.load(abi.RXBufferSize)) {
		a.status = abi.DequeueBufferStatus
		return
	}
	if len(x.free) > 0 {
		i := x.free[0]
		d := x.descriptor(i)
		d.Status, d.Tag, d.Len, d.Src, d.Seq = abi.RXReserved, a.Tag, uint32(len(payload)), a.Src, a.Seq
		if e.Memory.Write(d.Addr, false, payload) == 0 {
			x.free = slices.Delete(x.free, 0, 1)
			x.describe(i, d)
			a.buffer = i
			return
		}
		a.status = abi.DMADecode
		return
	}
	a.bytes = append(Alloc(len(payload))[:0], payload...)
}

func (x *inbox) descriptor(i int) abi.RXDescriptor {
	return abi.ParseRXDescriptor([abi.RXWords]uint32(x.engine.exch.from(abi.RXDescriptorAt(i), abi.RXWords)))
}

func (x *inbox) describe(i int, d abi.RXDescriptor) {
	for k, w := range d.Words() {
		x.engine.exch.store(abi.RXDescriptorAt(i)+uint32(4*k), w)
	}
}

// payload returns a message's bytes, until the region, if it isn't nil, is released.
func (x *inbox) payload(a *arrival) ([]byte, *region, abi.Status) {
	if a.buffer < 0 || a.status != 0 {
		return a.bytes, nil, a.status
	}
	d := x.descriptor(a.buffer)
	b, r := x.engine.Memory.at(d.Addr, int(d.Len), false)
	if r == nil {
		return nil, nil, abi.DMADecode
	}
	return b, r, 0
}

// release gives the message's RX buffer back.
func (x *inbox) release(a *arrival) {
	if a.buffer < 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.buffer < x.buffers { // there was no reset
		x.engine.exch.store(abi.RXDescriptorAt(a.buffer), uint32(abi.RXEnqueued))
		x.free = append(x.free, a.buffer)
	}
}

// turns are how often a call that waits yields before it sleeps: some 30 us if no other goroutine runs. A goroutine
// that is woken lands in the run queue of the waker's processor, from which another processor takes it only after
// microseconds.
const turns = 200

// await waits for a message, which it takes out. It's nil if the call was dropped. before, if it isn't nil, is called
// before a wait that isn't over at once.
func (c *Call) await(w want, before func()) *arrival {
	if !c.ok() {
		return nil
	}
	x := &c.engine.inbox
	x.mu.Lock()
	for i, a := range x.pending {
		if w.matches(a) {
			x.pending = slices.Delete(x.pending, i, i+1)
			x.mu.Unlock()
			return a
		}
	}
	p := &c.waiter
	if p.ch == nil {
		p.ch = make(chan struct{}, 1)
	}
	p.want, p.since, p.got = w, time.Now(), nil
	x.waiters = append(x.waiters, p)
	x.mu.Unlock()
	if before != nil {
		before()
	}
	for i := 0; i < turns && len(p.ch) == 0; i++ {
		runtime.Gosched()
	}
	if c.sleep(p) {
		return p.got
	}
	c.fail(abi.NotReady)
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.waiters, p); i >= 0 {
		x.waiters = slices.Delete(x.waiters, i, i+1)
	} else if a := p.got; a.buffer >= 0 && a.buffer < x.buffers { // it came at the last moment
		x.engine.exch.store(abi.RXDescriptorAt(a.buffer), uint32(abi.RXEnqueued))
		x.free = append(x.free, a.buffer)
	}
	return nil
}

// sleep waits until the message is there; false if the call is dropped.
func (c *Call) sleep(p *waiter) bool {
	select {
	case <-p.ch:
		return true
	default:
	}
	if c.wait == nil {
		select {
		case <-p.ch:
			return true
		case <-c.dropped:
			return false
		}
	}
	came := make(chan struct{})
	x := &c.engine.inbox
	x.mu.Lock()
	if p.got == nil {
		p.came = came
	} else {
		close(came)
	}
	x.mu.Unlock()
	select {
	case <-c.dropped:
	default:
		if c.wait(came) != nil {
			c.Drop()
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if p.came = nil; p.got == nil {
		return false
	}
	<-p.ch
	return true
}

// next waits for the next eager message of a rank.
func (c *Call) next(src int, tag uint32) *arrival {
	at := c.comm.seq(src, abi.InboundWord)
	seq := c.engine.exch.load(at)
	a := c.await(want{comm: c.comm, kind: abi.Eager, src: src, seq: seq}, nil)
	if a == nil {
		return nil
	}
	if !sameTag(a.Tag, tag) {
		x := &c.engine.inbox
		x.mu.Lock()
		x.pending = slices.Insert(x.pending, 0, a) // a receive with its tag may follow
		x.mu.Unlock()
		c.fail(abi.DequeueBufferTagMismatch)
		return nil
	}
	c.engine.exch.store(at, seq+1)
	return a
}
