package ucx

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
)

// peer is the link to another rank. The fabric's lock guards whatever has no other guard.
type peer struct {
	f        *Fabric
	rank     int
	address  []byte // of its worker
	number   uintptr
	sendKey  uint64       // begins frames for it
	recvKey  uint64       // begins its frames
	reported atomic.Int32 // status with which the endpoint has failed; 0: it hasn't
	heard    atomic.Int64 // tick of the heartbeat at which a frame came last

	endpoint uintptr     // 0: none yet, or none any more
	closing  uintptr     // request that ends the endpoint
	flushing uintptr     // request after which the endpoint is closed
	unable   error       // why this rank can't connect to it, set before that is reported
	err      error       // why nothing can be posted any more
	met      atomic.Bool // a frame of it has come
	said     bool        // this rank has said goodbye to it
	answered bool        // it has heard that, or has left itself
	early    [][]byte    // frames that wait until the peer has connected
	told     bool        // the failure that UCX has reported has been dealt with; guarded by the turn
	stalled  uint64      // the scan of frames in which one of its frames wasn't complete

	// Sending.
	nextOut uint64
	out     map[uint64]*outgoing
	room    int // bytes that may be sent without asking
	spent   transport.Spares[outgoing]

	// Receiving.
	nextIn   uint64
	asked    map[uint64]*incoming // that haven't been granted
	unasked  int                  // bytes that it has sent unasked and that are not yet paid back
	consumed int                  // of them, those that will be paid back with the next credit
	idle     transport.Spares[incoming]
}

// overhead is what a message counts against the window besides its bytes.
const overhead = headerBytes

func newPeer(f *Fabric, rank int, k *card, sendKey, recvKey uint64) *peer {
	p := &peer{f: f, rank: rank, address: k.Address, sendKey: sendKey, recvKey: recvKey, room: k.Window,
		out: map[uint64]*outgoing{}, asked: map[uint64]*incoming{}}
	p.register()
	return p
}

// outgoing is a message whose bytes wait for a grant, or are in UCX's hands.
type outgoing struct {
	m  *fabric.Msg
	id uint64
	// moving: the bytes are in UCX's hands.
	moving bool
}

// report notes that the endpoint has failed: the goroutine that makes progress next draws the consequences. The caller
// holds the lock.
func (p *peer) report(s abi.Status) {
	if p.reported.Load() != 0 {
		return
	}
	if p.unable == nil { // without descriptors UCX reports of the peer what is this process's own fault
		p.unable = spare(connectDescriptors)
	}
	p.reported.Store(int32(s))
	p.f.reports.Store(true)
	p.f.attend()
}

// connect makes the endpoint if there is none yet. The caller holds the lock.
func (p *peer) connect() bool {
	if p.endpoint != 0 {
		return true
	}
	if p.err != nil || p.reported.Load() != 0 || p.f.gone {
		return false
	}
	if err := spare(connectDescriptors); err != nil {
		p.unable = err
		p.reportUnable()
		p.report(abi.NoResource)
		return false
	}
	if err := p.open(); err != nil {
		status := abi.Unreachable
		if c, ok := errors.AsType[*CallError](err); ok {
			status = c.Status
			if status.Own() { // else the peer may have gone
				c.Under = p.f.w.limits
				p.unable = fmt.Errorf("%w: %w", fabric.ErrNoTransport, c)
			}
		}
		p.report(status)
		return false
	}
	p.heard.Store(p.f.ticks.Load())
	return true
}

// open makes the endpoint. The caller holds the lock.
func (p *peer) open() (err error) {
	mode := int32(abi.ErrHandlingPeer)
	if p.f.o.errors == "none" {
		mode = abi.ErrHandlingNone
	}
	p.endpoint, err = p.f.w.connect(p.address, mode, p.number)
	return err
}

// reportUnable tells the peer that this rank can't connect to it and why, so that the peer's error names the right
// rank. It uses the descriptors that are in reserve. The caller holds the lock.
func (p *peer) reportUnable() {
	if !p.f.reserve.release() || p.open() != nil {
		return
	}
	why := []byte(p.unable.Error())
	p.post(&header{kind: kindUnable, length: uint64(len(why))}, why)
	p.closeAfterFlush()
}

// closeAfterFlush closes the endpoint once what was sent is on its way. The caller holds the lock.
func (p *peer) closeAfterFlush() {
	if p.flushing = p.f.w.flush(p.endpoint); p.flushing == 0 {
		p.hangUp()
	} else {
		p.f.ending = append(p.f.ending, p)
	}
}

// post sends a frame. The caller holds the lock.
func (p *peer) post(h *header, payload []byte) {
	f := p.f
	h.key, h.from, h.payload = p.sendKey, uint32(f.rank), uint32(len(payload))
	n := headerBytes + len(payload)
	buf := f.buffers.Get(n)
	h.put(buf)
	copy(buf[headerBytes:], payload)
	if p.mayWait() {
		p.early = append(p.early, buf)
		return
	}
	p.push(buf)
}

// push sends a frame to a peer. The caller holds the lock.
func (p *peer) push(buf []byte) {
	f, n := p.f, len(buf)
	if !p.connect() {
		f.buffers.Put(buf)
		return
	}
	request, s := f.w.send(p.endpoint, unsafe.Pointer(unsafe.SliceData(buf)), n, tagFrame)
	if request != 0 {
		f.sends = append(f.sends, transfer{request: request, p: p, frame: buf})
		f.attend()
		return
	}
	f.buffers.Put(buf)
	if s != abi.OK {
		p.report(s)
		f.attend()
	}
}

func (p *peer) note(k kind, id uint64, length int) {
	p.post(&header{kind: k, id: id, length: uint64(length)}, nil)
}

// send posts a message.
func (p *peer) send(m *fabric.Msg) {
	f := p.f
	f.mu.Lock()
	if err := p.err; err != nil || f.gone {
		f.mu.Unlock()
		if err == nil {
			err = fabric.ErrClosed
		}
		m.Complete(0, m.Peer, err)
		return
	}
	h := header{class: m.Key.Class, comm: m.Key.Comm, tag: m.Key.Tag, id: p.nextOut, length: uint64(m.Len), desc: m.Desc}
	p.nextOut++
	if cost := m.Len + overhead; m.Len <= f.o.eager && cost <= p.room {
		p.room -= cost
		h.kind = kindEager
		p.post(&h, m.Bytes())
		f.mu.Unlock()
		m.Complete(m.Len, m.Peer, nil)
		return
	}
	h.kind = kindAsk
	o := p.spent.Get()
	if o == nil {
		o = new(outgoing)
	}
	*o = outgoing{m: m, id: h.id}
	p.out[h.id] = o
	p.post(&h, nil)
	f.mu.Unlock()
}

// drop forgets a message. The caller holds the lock.
func (p *peer) drop(o *outgoing) {
	delete(p.out, o.id)
	o.m = nil
	p.spent.Put(o)
}

// granted sends the bytes of a message under a tag, and returns the message if that ends it. The caller holds the
// lock.
func (p *peer) granted(id, tag uint64) (*fabric.Msg, error) {
	o := p.out[id]
	switch {
	case o == nil:
		p.note(kindRetract, id, 0) // canceled meanwhile
		return nil, nil
	case o.moving || !p.connect():
		return nil, nil
	}
	f := p.f
	request, s := f.w.send(p.endpoint, o.m.Buf, o.m.Len, tagData|tag)
	if request != 0 {
		o.moving = true
		f.sends = append(f.sends, transfer{request: request, p: p, out: o})
		return nil, nil
	}
	m := o.m
	p.drop(o)
	if s != abi.OK {
		p.report(s)
		return m, &fabric.PeerError{Peer: p.rank, Err: p.statusError(s)}
	}
	return m, nil
}

// takeAsking removes the sends that UCX doesn't have, and returns them. The caller holds the lock.
func (p *peer) takeAsking() (taken []*fabric.Msg) {
	for _, o := range p.out {
		if !o.moving {
			taken = append(taken, o.m)
			p.drop(o)
		}
	}
	return taken
}

// returnCredit counts bytes that came unasked and have been consumed, and returns the credit for them in large
// portions. The caller holds the lock.
func (p *peer) returnCredit(cost int) {
	p.unasked -= cost
	p.consumed += cost
	if p.consumed >= p.f.o.window/8 && p.err == nil {
		p.note(kindCredit, 0, p.consumed)
		p.consumed = 0
	}
}

// fail ends the link because it broke. The caller holds the turn.
func (p *peer) fail(cause error) {
	f := p.f
	f.mu.Lock()
	first := p.err == nil
	if first {
		p.err = &fabric.PeerError{Peer: p.rank, Err: cause}
	}
	failed := p.takeAsking()
	err := p.err
	p.answered = true
	if p.unable != nil && p.flushing != 0 { // the endpoint is closed when the peer has been told
		f.cancelReceives(p)
	} else {
		p.hangUp()
	}
	f.mu.Unlock()
	if first && !f.Closed() {
		f.Match.Lost(p.rank, cause)
	}
	for _, m := range failed {
		m.Complete(0, p.rank, err)
	}
	f.watcher.wake() // for what UCX ends
}

// left takes note of the peer's goodbye, after which nothing comes from it. The caller holds the turn.
func (p *peer) left() {
	f := p.f
	f.mu.Lock()
	if p.err != nil {
		f.mu.Unlock()
		return
	}
	p.note(kindBye, 0, 0)
	p.err = &fabric.PeerError{Peer: p.rank, Err: fabric.ErrLeft}
	p.answered = true
	err, failed := p.err, p.takeAsking()
	f.cancelReceives(p)
	if p.endpoint != 0 {
		p.closeAfterFlush()
	}
	f.mu.Unlock()
	if !f.Closed() {
		f.Match.Left(p.rank)
	}
	for _, m := range failed {
		m.Complete(0, p.rank, err)
	}
}

// hangUp closes the endpoint, whatever is under way on it. The caller holds the lock.
func (p *peer) hangUp() {
	f := p.f
	f.cancelReceives(p)
	if p.endpoint == 0 {
		if p.closing == 0 {
			f.abandon(p)
		}
		return
	}
	p.closing = f.w.closeEndpoint(p.endpoint)
	p.endpoint = 0
	if p.closing == 0 {
		f.abandon(p)
		return
	}
	f.ending = append(f.ending, p)
	f.attend()
}

// beat sends a ping, and reports whether the peer has been silent for too long.
func (p *peer) beat(now int64) error {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.err != nil || p.endpoint == 0 {
		return nil
	}
	if silent := now - p.heard.Load(); silent > beats {
		return fmt.Errorf("nothing heard of it for %v", f.o.heartbeat)
	}
	p.note(kindPing, 0, 0)
	return nil
}

// Of two ranks the lower one connects, and the other one waits for a moment. In a small world it connects at once. If
// both connect at a time, UCX makes two connections, and some releases end the process when both break.
const (
	earlyRanks = 64
	earlyTime  = 200 * time.Millisecond
)

// connectFirst connects to the peers that wait for it. The caller holds the lock.
func (f *Fabric) connectFirst() {
	if f.size > earlyRanks {
		return
	}
	f.early = true
	for r, p := range f.peers {
		if p != nil && r > f.rank {
			p.note(kindPing, 0, 0)
		}
	}
	f.late = time.AfterFunc(earlyTime, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.early = false
		for _, p := range f.peers {
			if p != nil {
				p.pushEarly()
			}
		}
	})
}

// mayWait reports whether a frame is to wait for the peer to connect.
func (p *peer) mayWait() bool {
	return p.f.early && p.endpoint == 0 && p.rank < p.f.rank && !p.met.Load() && p.err == nil
}

// pushEarly sends the frames that have waited. The caller holds the lock.
func (p *peer) pushEarly() {
	frames := p.early
	p.early = nil
	for _, buf := range frames {
		if p.err == nil && !p.f.gone {
			p.push(buf)
		}
	}
}
