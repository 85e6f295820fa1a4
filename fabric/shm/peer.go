package shm

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/hostmem"
	"github.com/chorus-comms/chorus/internal/sys"
)

// peer is another rank of this host.
type peer struct {
	f       *Fabric
	rank    int
	local   int
	pid     int
	link    *link
	mapping *hostmem.Mapping // its inbox
	page    *inboxPage       // of its inbox
	canRead bool             // this process may read its memory; progress lock
	maps    segments
	shared  shared

	// Sending.
	mu      sync.Mutex
	out     outRing
	queue   transport.Queue[*fabric.Msg] // messages that found the ring full, in order
	notes   []note                       // likewise; they go first
	outs    table[outgoing]
	pushing []uint64    // messages that are sent in pieces
	behind  atomic.Bool // flush has something to do
	claims  *[claimCount]claim
	err     error // why nothing can be sent any more
	failed  atomic.Bool

	// Receiving; progress lock.
	in          inRing
	broken      bool // in is corrupt
	acks        *atomic.Uint64
	acked       uint64
	theirClaims *[claimCount]claim
	theirAcks   *atomic.Uint64
	staged      table[*pull]
}

// outgoing is an announced message that isn't complete.
type outgoing struct {
	m         *fabric.Msg
	claimable bool // the peer may read it by itself
	pulled    bool // the peer asked for pieces
	pull      uint64
	sent      int // bytes
}

// A note is a control message to the peer's progress.
type note struct {
	kind     uint8
	id, pull uint64
}

// failure returns why the peer can't be reached, or nil.
func (p *peer) failure() error {
	if !p.failed.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// send posts a message.
func (p *peer) send(m *fabric.Msg) {
	p.mu.Lock()
	if p.err != nil {
		err := p.err
		if p.f.Closed() {
			err = fabric.ErrClosed
		}
		p.mu.Unlock()
		m.Complete(0, m.Peer, err)
		return
	}
	if !p.queue.Empty() || !p.emit(m) {
		p.queue.Push(m)
		p.behind.Store(true)
	}
	p.ring()
	p.mu.Unlock()
}

// emit writes a message to the ring and reports false if it's full.
func (p *peer) emit(m *fabric.Msg) bool {
	if m.Len <= wholeMax {
		ok, err := p.out.whole(m)
		if ok {
			m.Complete(m.Len, p.f.rank, nil)
		} else if err != nil {
			p.failLink(err)
		}
		return ok
	}
	id := p.outs.put(outgoing{m: m})
	if i := uint32(id); i < claimCount {
		p.outs.get(id).claimable = true
		p.claims[i].word.Store(claimWord(id, claimOpen))
	}
	ok, err := p.out.ready(m, id, p.f.Place(m.Buf, m.Len))
	if !ok {
		p.outs.drop(id)
		if err != nil {
			p.failLink(err)
		}
		return false
	}
	m.Priv[0], m.Priv[1] = id, 1
	return true
}

// claimWord is what the claim of a message holds.
func claimWord(id uint64, state uint64) uint64 { return id>>32<<8 | state }

// ring wakes the peer if it sleeps. Its lock or that of progress is held, so that the
// page is still mapped.
func (p *peer) ring() { p.page.ring() }

func (g *inboxPage) ring() {
	if g.sleepers.Load() != 0 {
		g.bell.Add(1)
		sys.FutexWake(word(&g.bell))
	}
}

func word(v *atomic.Uint32) *uint32 { return (*uint32)(unsafe.Pointer(v)) }

// tell sends a note, now or when there's room.
func (p *peer) tell(kind uint8, id, pull uint64) {
	p.mu.Lock()
	p.tellLocked(kind, id, pull)
	p.mu.Unlock()
}

func (p *peer) tellLocked(kind uint8, id, pull uint64) {
	if p.err != nil {
		return
	}
	if len(p.notes) == 0 {
		ok, err := p.out.note(kind, id, pull)
		if ok {
			p.ring()
			return
		}
		if err != nil {
			p.failLink(err)
			return
		}
	}
	p.notes = append(p.notes, note{kind, id, pull})
	p.behind.Store(true)
}

// flush sends what found the ring full, as far as there's room now.
func (p *peer) flush() (progress bool) {
	p.mu.Lock()
	if p.err != nil {
		p.behind.Store(false)
		p.mu.Unlock()
		return false
	}
	if progress = p.flushLocked(); progress {
		p.ring()
	}
	p.mu.Unlock()
	return progress
}

func (p *peer) flushLocked() (progress bool) {
	done := 0
	for _, n := range p.notes {
		ok, err := p.out.note(n.kind, n.id, n.pull)
		if !ok {
			if err != nil {
				p.failLink(err)
			}
			break
		}
		done++
	}
	p.notes = append(p.notes[:0], p.notes[done:]...)
	progress = done > 0
	if len(p.notes) > 0 {
		return progress
	}
	for !p.queue.Empty() {
		if !p.emit(p.queue.First()) {
			return progress
		}
		p.queue.Pop()
		progress = true
	}
	if p.push() {
		progress = true
	}
	if len(p.pushing) == 0 {
		p.behind.Store(false)
	}
	return progress
}

// push sends pieces of the messages that the peer pulls, in turn.
func (p *peer) push() (progress bool) {
	for i := 0; i < len(p.pushing); {
		if crowded, err := p.out.crowded(); crowded || err != nil {
			if err != nil {
				p.failLink(err)
			}
			return progress
		}
		id := p.pushing[i]
		o := p.outs.get(id)
		n := min(o.m.Len-o.sent, p.f.shape.pieceMax())
		ok, err := p.out.piece(o.pull, unsafe.Add(o.m.Buf, o.sent), n)
		if !ok {
			if err != nil {
				p.failLink(err)
			}
			return progress
		}
		progress = true
		if o.sent += n; o.sent < o.m.Len {
			i++
			continue
		}
		m := o.m
		p.outs.drop(id)
		p.pushing = append(p.pushing[:i], p.pushing[i+1:]...)
		m.Complete(m.Len, p.f.rank, nil)
	}
	return progress
}

// pulled answers the peer's wish for the pieces of a message.
func (p *peer) pulled(id, pull uint64) {
	p.mu.Lock()
	if o := p.outs.get(id); o == nil || o.pulled {
		p.tellLocked(kindGone, id, pull)
	} else if p.err == nil {
		o.pulled, o.pull = true, pull
		p.pushing = append(p.pushing, id)
		p.behind.Store(true)
	}
	p.mu.Unlock()
}

// dropped completes a message that the peer doesn't want.
func (p *peer) dropped(id uint64) {
	p.mu.Lock()
	if o := p.outs.get(id); o != nil && !o.pulled {
		m := o.m
		p.outs.drop(id)
		m.Complete(m.Len, p.f.rank, nil)
	}
	p.mu.Unlock()
}

// collect completes the messages that the peer has read.
func (p *peer) collect(acks uint64) {
	p.acked = acks
	p.mu.Lock()
	for i := range min(claimCount, len(p.outs.items)) {
		it := &p.outs.items[i]
		if !it.live || !it.value.claimable {
			continue
		}
		id := uint64(it.gen)<<32 | uint64(i)
		if p.claims[i].word.Load() == claimWord(id, claimDone) {
			m := it.value.m
			p.outs.drop(id)
			p.forgetPushed(id)
			m.Complete(m.Len, p.f.rank, nil)
		}
	}
	p.mu.Unlock()
}

func (p *peer) forgetPushed(id uint64) {
	for i, x := range p.pushing {
		if x == id {
			p.pushing = append(p.pushing[:i], p.pushing[i+1:]...)
			return
		}
	}
}

// failLink breaks the link with a peer that has violated the protocol; its reader reports the loss.
func (p *peer) failLink(err error) { p.link.abandon(err) }

// refuse tells the peer that its message won't be read.
func (p *peer) refuse(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	if i := uint32(id); i >= claimCount {
		p.tellLocked(kindDrop, id, 0)
	} else if p.theirClaims[i].word.CompareAndSwap(claimWord(id, claimOpen), claimWord(id, claimDone)) {
		p.theirAcks.Add(1)
		p.ring()
	}
}

// fail completes all that waits to be sent. It's called once, with the reason
// why nothing can be sent any more.
func (p *peer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	p.failed.Store(true)
	for !p.queue.Empty() {
		p.queue.Pop().Complete(0, p.rank, err)
	}
	p.notes, p.pushing = nil, nil
	p.outs.all(func(id uint64, o *outgoing) {
		m := o.m
		p.outs.drop(id)
		m.Complete(0, p.rank, err)
	})
}
