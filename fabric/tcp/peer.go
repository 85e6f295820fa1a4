package tcp

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// peer is the link to another rank: its connections, and all messages that are
// under way in either direction. Its lock is never held while the Matcher is
// called, a message is completed, or bytes move.
type peer struct {
	f     *Fabric
	rank  int
	near  bool // it's on this rank's host
	addrs []netip.AddrPort
	heard atomic.Int64 // tick of the heartbeat at which bytes came last

	mu  sync.Mutex
	err error // why nothing can be posted any more
	// reporting: the peer is being told that this rank is unable to keep the link up.
	reporting bool
	pipes     []*pipe // 0: announcements and small messages; others: chunks

	// Sending.
	nextOut uint64
	out     map[uint64]*outgoing       // announced, not done
	bulk    transport.Queue[*outgoing] // chunks to send
	room    int                        // bytes that may be sent without asking
	frames  transport.Spares[frame]    // unused
	spent   transport.Spares[outgoing] // unused
	pinged  bool                       // a ping waits to be written

	// Receiving.
	nextIn   uint64                     // id of the next announcement
	in       map[uint64]*incoming       // announced with chunks to come
	unasked  int                        // bytes that the peer sent unasked and that are not yet paid back
	consumed int                        // of them, those that will be paid back with the next credit
	idle     transport.Spares[incoming] // unused
}

// newPeer makes the link to a rank from its card; nil if there's none.
func (f *Fabric) newPeer(rank int) *peer {
	if !f.reaches(rank) {
		return nil
	}
	var k card
	if err := k.decode(f.cards[rank], &f.mine, rank, f.rank); err != nil {
		panic(err) // Join has checked it
	}
	p := &peer{f: f, rank: rank, near: k.near(f.mine.host), out: map[uint64]*outgoing{}, in: map[uint64]*incoming{},
		room: k.window}
	p.addrs = k.addresses(p.near)
	for i := range f.o.connections + 1 {
		p.pipes = append(p.pipes, newPipe(p, i))
	}
	return p
}

// overhead is what a message counts against the window besides its bytes, so
// that many empty ones don't fill the receiver's memory either.
const overhead = headerBytes

// send announces a message, with its bytes or without.
func (p *peer) send(m *fabric.Msg) {
	p.mu.Lock()
	if err := p.err; err != nil {
		p.mu.Unlock()
		m.Complete(0, m.Peer, err)
		return
	}
	id := p.nextOut
	p.nextOut++
	h := header{class: m.Key.Class, comm: m.Key.Comm, tag: m.Key.Tag, id: id, length: uint64(m.Len), desc: m.Desc}
	fr := p.frame()
	switch cost := m.Len + overhead; {
	case m.Len <= p.f.o.eager && cost <= p.room:
		p.room -= cost
		h.kind, h.payload = kindEager, uint32(m.Len)
		fr.m, fr.payload = m, m.Bytes()
	case cost <= p.room:
		p.room -= cost
		h.kind = kindPush
		o := p.outgoing(m, id, cost)
		p.queue(o)
		p.startBulk()
	default:
		h.kind = kindAsk
		p.outgoing(m, id, 0)
	}
	h.put(&fr.head)
	p.post(fr)
	p.mu.Unlock()
	p.pipes[0].write(portion)
	switch {
	case h.kind == kindPush && m.Len <= maxImmediate:
		p.writeBulk()
	case h.kind == kindPush:
		p.leaveBulk()
	}
}

// maxImmediate is the largest pushed message, in bytes, that is written when it's posted. A larger one is
// left to the wait for it, which reads as it writes, or to the poller.
const maxImmediate = 1 << 20

// control sends a control payload ahead of what waits.
func (p *peer) control(payload []byte) error {
	p.mu.Lock()
	if err := p.err; err != nil && (!p.reporting || p.pipes[0].state != up) {
		p.mu.Unlock()
		return err
	}
	fr := p.frame()
	fr.payload = append([]byte(nil), payload...)
	h := header{kind: kindControl, payload: uint32(len(payload))}
	h.put(&fr.head)
	p.urge(fr)
	p.mu.Unlock()
	p.pipes[0].write(portion)
	return nil
}

// note queues a frame without a payload. The caller holds the lock, and calls
// write on pipe 0 when it no longer does.
func (p *peer) note(k kind, id uint64, length int) {
	if p.err != nil {
		return
	}
	fr := p.frame()
	h := header{kind: k, id: id, length: uint64(length)}
	h.put(&fr.head)
	p.urge(fr)
}

// post queues a frame, and urge one that goes first: grants and control payloads
// don't wait for messages. Both connect the first pipe if it isn't yet.
func (p *peer) post(fr *frame) {
	p.pipes[0].queue.Push(fr)
	p.pipes[0].connect()
}

func (p *peer) urge(fr *frame) {
	p.pipes[0].urgent.Push(fr)
	p.pipes[0].connect()
}

// connect connects the first pipe, unless it is or the link has ended.
func (p *peer) connect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.pipes[0].connect()
	}
}

// startBulk connects the data connections. The caller holds the lock, and calls writeBulk or leaveBulk afterwards.
func (p *peer) startBulk() {
	for _, pp := range p.pipes[1:] {
		pp.connect()
	}
}

// writeBulk writes chunks on all data connections that take some.
func (p *peer) writeBulk() (moved bool) {
	for _, pp := range p.pipes[1:] {
		moved = pp.write(portion) || moved
	}
	return moved
}

// leaveBulk leaves chunks to the goroutines that wait, and to the poller if none does.
func (p *peer) leaveBulk() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pp := range p.pipes[1:] {
		if pp.state == up && pp.pending() {
			pp.poller.requeue(pp)
		}
	}
}

// poll moves what can be moved to and from the peer, in portions.
func (p *peer) poll() (moved bool) {
	p.mu.Lock()
	if p.pipes[0].fd < 0 {
		p.mu.Unlock()
		return false
	}
	chunks := len(p.in) > 0 || !p.bulk.Empty()
	for _, pp := range p.pipes[1:] {
		chunks = chunks || pp.chunk != nil
	}
	p.mu.Unlock()
	moved = p.pipes[0].read(portion)
	moved = p.pipes[0].write(portion) || moved
	if chunks {
		moved = p.pollChunks() || moved
	}
	return moved
}

// pollChunks asks the kernel first which data connections are ready: that takes no lock, while reading an
// empty socket takes the one that the peer's bytes need to get in.
func (p *peer) pollChunks() (moved bool) {
	var room [maxConnections]unix.PollFd
	fds := room[:len(p.pipes)-1]
	p.mu.Lock()
	for i, pp := range p.pipes[1:] {
		fds[i] = unix.PollFd{Fd: int32(pp.fd), Events: unix.POLLIN} // ignored if negative
		if pp.pending() {
			fds[i].Events |= unix.POLLOUT
		}
	}
	p.mu.Unlock()
	if k, err := unix.Poll(fds, 0); k <= 0 || err != nil {
		return false
	}
	for i, pp := range p.pipes[1:] {
		if fds[i].Revents&^unix.POLLOUT != 0 {
			moved = pp.read(portion) || moved
		}
	}
	if moved {
		return true // what has come is hot, and its sender goes on while it's read
	}
	for i, pp := range p.pipes[1:] {
		if fds[i].Revents&unix.POLLOUT != 0 {
			moved = pp.write(small) || moved
		}
	}
	return moved
}

// anyBlocked reports whether a pipe waits for another one. The caller holds the lock.
func (p *peer) anyBlocked() bool {
	for _, pp := range p.pipes {
		if pp.blocked {
			return true
		}
	}
	return false
}

// unblock reads pipes on which something waited for another one, or for the link's end.
func (p *peer) unblock() {
	for _, pp := range p.pipes[1:] {
		p.mu.Lock()
		blocked := pp.blocked
		p.mu.Unlock()
		if blocked {
			pp.read(backlog)
		}
	}
}

// frame returns an unused frame. The caller holds the lock.
func (p *peer) frame() *frame {
	if fr := p.frames.Get(); fr != nil {
		return fr
	}
	return &frame{}
}

func (p *peer) reuse(fr *frame) {
	fr.m, fr.payload, fr.last = nil, nil, false
	p.frames.Put(fr)
}

// returnCredit counts bytes that were pushed and have been consumed, and returns the credit for
// them in large portions. The caller holds the lock and writes on pipe 0 afterwards.
func (p *peer) returnCredit(cost int) {
	p.unasked -= cost
	p.consumed += cost
	if p.consumed >= p.f.o.window/8 {
		p.note(kindCredit, 0, p.consumed)
		p.consumed = 0
	}
}

// carries reports whether m is under way with this peer.
func (p *peer) carries(m *fabric.Msg) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.out {
		if o.m == m {
			return true
		}
	}
	for _, in := range p.in {
		if in.m == m {
			return true
		}
	}
	for _, pp := range p.pipes {
		if pp.cur != nil && pp.cur.m == m || pp.into != nil && pp.into.m == m {
			return true
		}
	}
	return false
}

// fail ends the link because it broke. All ranks get the reason first, the peer too if it's still reachable: it would
// otherwise report this rank as lost.
func (p *peer) fail(cause error) { p.failAfter(cause, func() {}) }

// readPending reads what the peer has sent before its link broke, most likely the reason, unless another goroutine is
// reading it.
func (p *peer) readPending() { p.pipes[0].read(portion) }

// failAfter is fail, but the connections only break after tell has run: else the peer might see the break before
// the reason.
func (p *peer) failAfter(cause error, tell func()) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = &fabric.PeerError{Peer: p.rank, Err: cause}
		p.reporting = true
	}
	p.mu.Unlock()
	if first {
		p.f.Match.Lost(p.rank, cause)
	}
	tell()
	if first {
		p.mu.Lock()
		p.reporting = false
		p.mu.Unlock()
		p.end(cause)
	}
}

// end breaks all connections and fails everything under way. A message that a goroutine is reading
// or writing at the moment is failed by that goroutine. If the link has ended already, errors of
// its last exchanges are ignored. The Handler isn't called.
func (p *peer) end(cause error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = &fabric.PeerError{Peer: p.rank, Err: cause}
		if cause == fabric.ErrClosed {
			p.err = cause
		}
	}
	err := p.err
	failed := p.takeSends()
	failed = p.takeReceives(failed)
	for _, pp := range p.pipes {
		pp.close()
	}
	p.mu.Unlock()
	for _, m := range failed {
		m.Complete(0, p.rank, err)
	}
	p.drain()
}

// drain lets go of pipes that were closed.
func (p *peer) drain() {
	for _, pp := range p.pipes {
		pp.drain()
	}
}

// takeSends removes all sends from the link that no goroutine is writing, and returns them.
func (p *peer) takeSends() (failed []*fabric.Msg) {
	for _, pp := range p.pipes {
		for _, q := range []*transport.Queue[*frame]{&pp.urgent, &pp.queue} {
			for !q.Empty() {
				if fr := q.Pop(); fr.m != nil {
					failed = append(failed, fr.m)
				}
			}
		}
	}
	p.bulk = transport.Queue[*outgoing]{}
	for id, o := range p.out {
		o.queued = false
		if o.busy == 0 {
			failed = append(failed, o.m)
			delete(p.out, id)
		}
	}
	return failed
}

// takeReceives removes all receives from the link that no goroutine is reading, and appends them to
// failed.
func (p *peer) takeReceives(failed []*fabric.Msg) []*fabric.Msg {
	for id, in := range p.in {
		if in.busy == 0 && in.m != nil {
			failed = append(failed, in.m)
			in.m = nil
			delete(p.in, id)
		}
		in.broken = true
	}
	return failed
}

// left takes note of the peer's goodbye: nothing new comes, and nothing that is
// posted for it will be read.
func (p *peer) left() {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = &fabric.PeerError{Peer: p.rank, Err: fabric.ErrLeft}
	}
	err := p.err
	failed := p.takeSends()
	p.mu.Unlock()
	if first {
		p.f.Match.Left(p.rank)
	}
	for _, m := range failed {
		m.Complete(0, p.rank, err)
	}
	p.unblock()
}

// controlPending reports whether a control payload waits for the link to come up, or the peer is being told why it
// doesn't.
func (p *peer) controlPending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.pipes[0]
	return p.reporting || (first.state == dialing || first.state == accepting) && !first.urgent.Empty()
}

// goodbye fails what is posted, and ends every connection with a last frame, which comes after control payloads, and
// after announcements: another connection may have brought the bytes already, and the message is then sent.
func (p *peer) goodbye() {
	p.mu.Lock()
	var words, announcements []*frame
	first := p.pipes[0]
	if p.err == nil {
		p.err = fabric.ErrClosed
		words, announcements = takeKind(&first.urgent, kindControl), takeKind(&first.queue, kindPush)
	}
	failed := p.takeReceives(p.takeSends())
	for _, fr := range words {
		first.urgent.Push(fr)
	}
	for _, fr := range announcements {
		first.queue.Push(fr)
	}
	for _, pp := range p.pipes {
		if pp.state == idle {
			pp.close()
		}
		if pp.state == closed {
			continue
		}
		fr := p.frame()
		fr.last = true
		h := header{kind: kindGoodbye}
		h.put(&fr.head)
		pp.queue.Push(fr)
	}
	p.mu.Unlock()
	for _, m := range failed {
		m.Complete(0, p.rank, fabric.ErrClosed)
	}
	for _, pp := range p.pipes {
		pp.write(portion)
	}
	p.unblock()
}

// takeKind takes the frames of a kind out of a queue.
func takeKind(q *transport.Queue[*frame], k kind) []*frame {
	return q.Take(func(fr *frame) bool { return fr.head[2] == byte(k) })
}

// hangUp closes the connections of a peer that took too long to say goodbye.
func (p *peer) hangUp() {
	p.mu.Lock()
	for _, pp := range p.pipes {
		pp.close()
	}
	p.mu.Unlock()
	p.drain()
}

func at(m *fabric.Msg, offset, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(m.Buf, offset)), n)
}
