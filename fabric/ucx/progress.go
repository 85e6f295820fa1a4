package ucx

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
)

// transfer is a request of UCX's: a frame or the bytes of a message on their way out, or bytes that are received.
type transfer struct {
	request uintptr
	p       *peer
	frame   []byte      // out: a frame
	out     *outgoing   // out: bytes
	m       *fabric.Msg // in: the receive
	id      uint64      // in: of the message
	n       int         // in: its length
	cause   error       // in: why it has been canceled
}

// outcome is a message that is to be completed when no lock is held.
type outcome struct {
	m    *fabric.Msg
	from int
	n    int
	err  error
}

const slots = 64 // buffers for frames that are posted in advance

// ring is those buffers.
type ring struct {
	bytes    int // of a slot
	memory   []byte
	requests [slots]uintptr
	order    []int // those that are posted, in the order in which UCX fills them
	ready    []arrived
	scans    uint64
}

// arrived is a frame that is complete.
type arrived struct{ slot, n int }

func (r *ring) slot(i int) []byte { return r.memory[i*r.bytes : (i+1)*r.bytes : (i+1)*r.bytes] }

// open posts all buffers. The caller holds the lock.
func (f *Fabric) openRing() error {
	r := &f.ring
	r.bytes = (headerBytes + max(f.o.eager, fabric.MaxControl) + 63) &^ 63
	r.memory = make([]byte, slots*r.bytes)
	for i := range slots {
		if err := f.postSlot(i); err != nil {
			return err
		}
	}
	return nil
}

// postSlot posts a buffer. Its first word is the key of a frame: as long as that's 0 nothing has come.
func (f *Fabric) postSlot(i int) error {
	r := &f.ring
	b := r.slot(i)
	clear(b[:8])
	request, s := f.w.receive(unsafe.Pointer(unsafe.SliceData(b)), len(b), tagFrame, tagKind)
	if request == 0 {
		return &CallError{Function: "ucp_tag_recv_nbx", Status: s}
	}
	r.requests[i] = request
	r.order = append(r.order, i)
	return nil
}

// scan finds the frames that have come, in the order of each sender: a frame that isn't complete holds up what its
// sender has sent afterwards. UCX fills the buffers in the order in which they were posted.
func (f *Fabric) scan() {
	r := &f.ring
	r.ready = r.ready[:0]
	if len(r.order) == 0 || binary.NativeEndian.Uint64(r.slot(r.order[0])) == 0 {
		return
	}
	r.scans++
	kept := 0
	for k, i := range r.order {
		b := r.slot(i)
		if binary.NativeEndian.Uint64(b) == 0 {
			kept += copy(r.order[kept:], r.order[k:])
			break
		}
		p := f.sender(b)
		n, s := 0, abi.InProgress
		if p == nil || p.stalled != r.scans {
			n, s = f.w.received(r.requests[i])
		}
		if s == abi.InProgress {
			if p != nil {
				p.stalled = r.scans
			}
			r.order[kept] = i
			kept++
			continue
		}
		if s != abi.OK {
			n = 0 // too long, or cut off: it's no frame
		}
		f.w.free(r.requests[i])
		r.ready = append(r.ready, arrived{i, n})
	}
	r.order = r.order[:kept]
}

// sender returns whose a frame is, by what it says.
func (f *Fabric) sender(frame []byte) *peer {
	if r := binary.LittleEndian.Uint32(frame[12:]); int(r) < f.size {
		return f.peers[r]
	}
	return nil
}

// progress moves what can be moved, and reports whether anything was. It does nothing while another goroutine is at it.
func (f *Fabric) progress() bool {
	if !f.turn.TryLock() {
		return false
	}
	defer f.turn.Unlock()
	f.mu.Lock()
	if f.gone {
		f.mu.Unlock()
		return false
	}
	moved := f.w.progress()
	if moved || f.unsure {
		f.unsure = false
		f.checkSends()
		f.checkReceives()
		f.checkEnding()
	}
	f.scan()
	done := len(f.done)
	f.mu.Unlock()
	if done > 0 {
		f.complete()
	}
	if f.reports.Load() {
		f.failReported()
	}
	if len(f.ring.ready) == 0 {
		return moved
	}
	for _, a := range f.ring.ready {
		f.handle(f.ring.slot(a.slot)[:a.n])
	}
	f.mu.Lock()
	for _, a := range f.ring.ready {
		f.postSlot(a.slot) // UCX keeps what comes while none is posted
	}
	done = len(f.done)
	f.mu.Unlock()
	if done > 0 {
		f.complete()
	}
	return true
}

// complete completes the messages of f.done. The caller holds the turn, and no lock.
func (f *Fabric) complete() {
	f.mu.Lock()
	f.done, f.ended = f.ended[:0], f.done
	f.mu.Unlock()
	for i, o := range f.ended {
		f.ended[i] = outcome{}
		o.m.Complete(o.n, o.from, o.err)
	}
}

// failReported ends the links of peers whose endpoints have failed.
func (f *Fabric) failReported() {
	f.reports.Store(false)
	for _, p := range f.peers {
		if p == nil {
			continue
		}
		if s := p.reported.Load(); s != 0 && !p.told {
			p.told = true
			p.fail(p.statusError(abi.Status(s)))
		}
	}
}

// checkSends looks at what is on its way out. The caller holds the lock.
func (f *Fabric) checkSends() {
	kept := 0
	for _, t := range f.sends {
		s := f.w.status(t.request)
		if s == abi.InProgress {
			f.sends[kept] = t
			kept++
			continue
		}
		f.w.free(t.request)
		f.sent(t, s)
	}
	clear(f.sends[kept:])
	f.sends = f.sends[:kept]
}

// sent ends a transfer on its way out.
func (f *Fabric) sent(t transfer, s abi.Status) {
	if s != abi.OK && t.p.err == nil {
		t.p.report(s)
	}
	f.buffers.Put(t.frame)
	if t.out == nil {
		return
	}
	m := t.out.m
	t.p.drop(t.out)
	if s == abi.OK {
		f.done = append(f.done, outcome{m, m.Peer, m.Len, nil})
		return
	}
	f.done = append(f.done, outcome{m, m.Peer, 0, t.p.reason(s)})
}

// reason is the error for a message that went with the link.
func (p *peer) reason(s abi.Status) error {
	switch {
	case p.f.Closed():
		return fabric.ErrClosed
	case p.err != nil:
		return p.err
	}
	return &fabric.PeerError{Peer: p.rank, Err: p.statusError(s)}
}

// checkReceives looks at what is being received. The caller holds the lock.
func (f *Fabric) checkReceives() {
	kept := 0
	for _, t := range f.receives {
		n, s := f.w.received(t.request)
		if s == abi.InProgress {
			f.receives[kept] = t
			kept++
			continue
		}
		f.w.free(t.request)
		f.came(t, n, s)
	}
	clear(f.receives[kept:])
	f.receives = f.receives[:kept]
}

// came ends a receive.
func (f *Fabric) came(t transfer, n int, s abi.Status) {
	o := outcome{t.m, t.p.rank, n, nil}
	switch {
	case s == abi.OK && n == t.n:
	case s == abi.OK:
		o.n, o.err = 0, fmt.Errorf("ucx: rank %d sent %d bytes of a message of %d", t.p.rank, n, t.n)
	case t.cause != nil:
		o.n, o.err = 0, t.cause
	default:
		o.n, o.err = 0, t.p.reason(s)
		if t.p.err == nil && !f.Closed() {
			t.p.report(s)
		}
	}
	f.done = append(f.done, o)
}

// cancelReceives withdraws the receives from a peer whose bytes haven't come. The caller holds the lock.
func (f *Fabric) cancelReceives(p *peer) {
	for i := range f.receives {
		if r := &f.receives[i]; r.p == p {
			if r.cause == nil {
				r.cause = p.reason(abi.Canceled)
			}
			f.w.cancel(r.request)
			f.attend()
		}
	}
}

// checkEnding goes on with the ends of endpoints. The caller holds the lock.
func (f *Fabric) checkEnding() {
	for _, p := range slices.Clone(f.ending) {
		switch {
		case p.flushing != 0:
			if f.w.status(p.flushing) == abi.InProgress {
				continue
			}
			f.w.free(p.flushing)
			p.flushing = 0
			f.ending = slices.DeleteFunc(f.ending, func(q *peer) bool { return q == p })
			if p.closing != 0 {
				f.ending = append(f.ending, p)
				continue
			}
			p.hangUp()
		case p.closing != 0:
			if f.w.status(p.closing) == abi.InProgress {
				continue
			}
			f.w.free(p.closing)
			p.closing = 0
			f.ending = slices.DeleteFunc(f.ending, func(q *peer) bool { return q == p })
			f.abandon(p)
		}
	}
	if len(f.ending) > 0 {
		f.attend()
	}
}

// abandon ends what UCX doesn't complete although its endpoint is closed. The caller holds the lock.
func (f *Fabric) abandon(p *peer) {
	f.checkSends()
	f.checkReceives()
	f.sends = slices.DeleteFunc(f.sends, func(t transfer) bool {
		if t.p != p {
			return false
		}
		f.sent(transfer{p: p, out: t.out}, abi.Canceled) // UCX may have the frame yet
		f.lost = append(f.lost, t.frame)
		return true
	})
	f.receives = slices.DeleteFunc(f.receives, func(t transfer) bool {
		if t.p == p {
			f.came(t, 0, abi.Canceled)
		}
		return t.p == p
	})
	f.unsure = true
}

// handle takes a frame. The caller holds the turn. A frame from elsewhere has no effect.
func (f *Fabric) handle(frame []byte) {
	var h header
	if len(frame) < headerBytes {
		return
	}
	p := f.sender(frame)
	if p == nil || binary.LittleEndian.Uint64(frame) != p.recvKey {
		return
	}
	err := h.parse(frame)
	payload := frame[headerBytes:]
	p.heard.Store(f.ticks.Load())
	if !p.met.Load() {
		f.mu.Lock()
		p.met.Store(true) // with the lock, so that nothing goes before what has waited
		p.pushEarly()
		f.mu.Unlock()
	}
	if err == nil {
		err = p.take(&h, payload)
	}
	if err != nil {
		p.fail(err)
	}
}

// take does what a frame says.
func (p *peer) take(h *header, payload []byte) error {
	f := p.f
	switch h.kind {
	case kindEager, kindAsk:
		in, err := p.announced(h, payload)
		if err != nil {
			return err
		}
		in.deliver()
	case kindControl:
		f.Match.Control(p.rank, slices.Clone(payload))
	case kindRetract:
		p.retracted(h.id)
	case kindGoodbye:
		p.left()
	case kindUnable:
		return &fabric.UnableError{Peer: p.rank, Reason: string(payload)}
	default:
		return p.takeNote(h)
	}
	return nil
}

// takeNote does what a frame says that is about this rank's own messages.
func (p *peer) takeNote(h *header) error {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	switch h.kind {
	case kindGrant:
		if m, err := p.granted(h.id, h.tag&^tagKind); m != nil {
			n := m.Len
			if err != nil {
				n = 0
			}
			f.done = append(f.done, outcome{m, m.Peer, n, err})
		}
	case kindDrop:
		if o := p.out[h.id]; o != nil && !o.moving {
			f.done = append(f.done, outcome{o.m, o.m.Peer, o.m.Len, nil})
			p.drop(o)
		}
	case kindCredit:
		if h.length > 1<<30 {
			return fmt.Errorf("it gave credit for %d bytes", h.length)
		}
		p.room += int(h.length)
	case kindPing:
		p.connect()
	case kindBye:
		p.answered = true
	}
	return nil
}
