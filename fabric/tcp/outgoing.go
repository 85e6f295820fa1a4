package tcp

import (
	"fmt"

	"github.com/chorus-comms/chorus/fabric"
)

// outgoing is a message whose bytes are sent in chunks: pushed at once, or when
// the receiver has granted them.
type outgoing struct {
	m        *fabric.Msg
	id       uint64
	cost     int  // of the window, if pushed
	next     int  // where the next chunk starts
	left     int  // bytes not written yet
	busy     int  // goroutines that are writing a chunk
	queued   bool // among those with chunks to send
	canceled bool
}

// queue has a message's chunks sent. The caller holds the lock.
func (p *peer) queue(o *outgoing) {
	o.queued = true
	p.bulk.Push(o)
}

// outgoing registers a message. The caller holds the lock.
func (p *peer) outgoing(m *fabric.Msg, id uint64, cost int) *outgoing {
	o := p.spent.Get()
	if o == nil {
		o = &outgoing{}
	}
	*o = outgoing{m: m, id: id, left: m.Len, cost: cost}
	p.out[id] = o
	return o
}

func (p *peer) drop(o *outgoing) {
	delete(p.out, o.id)
	o.m = nil
	p.spent.Put(o)
}

// after looks at a message of which a goroutine has just written a chunk, and
// reports whether that ends it, and how. The caller holds the lock.
func (p *peer) after(o *outgoing, index int, err error) (m *fabric.Msg, merr error, done bool) {
	m = o.m
	switch {
	case o.busy > 0:
		return m, nil, false // the last goroutine decides
	case o.left == 0:
	case o.canceled:
		p.retract(o.id)
		merr = fabric.ErrCanceled
	case err != nil || p.err != nil:
		merr = p.reason(p.err, index, err)
	default:
		return m, nil, false
	}
	if o.queued {
		p.bulk.Remove(o)
	}
	p.drop(o)
	return m, merr, true
}

// reason is the error for a message that a broken connection took along.
func (p *peer) reason(perr error, index int, err error) error {
	if perr != nil {
		return perr
	}
	return &fabric.PeerError{Peer: p.rank, Err: lost(index, err)}
}

func lost(index int, err error) error { return fmt.Errorf("connection %d: %w", index, err) }

// retract tells the peer that a message won't come, or not the rest of it. Unlike
// other notes it doesn't overtake the announcement. The caller holds the lock.
func (p *peer) retract(id uint64) {
	if p.err != nil {
		return
	}
	fr := p.frame()
	h := header{kind: kindRetract, id: id}
	h.put(&fr.head)
	p.post(fr)
}

// granted starts sending a message that the receiver wants.
func (p *peer) granted(id uint64) {
	p.mu.Lock()
	if o := p.out[id]; o == nil {
		p.retract(id) // canceled meanwhile
	} else if !o.queued && o.next == 0 && o.cost == 0 && o.busy == 0 {
		p.queue(o)
		p.startBulk()
	}
	p.mu.Unlock()
	p.pipes[0].write(portion)
	p.writeBulk()
}

// unwanted completes a message that the receiver doesn't want.
func (p *peer) unwanted(id uint64) {
	p.mu.Lock()
	o := p.out[id]
	if o == nil || o.queued || o.busy > 0 {
		p.mu.Unlock()
		return
	}
	m := o.m
	p.drop(o)
	p.mu.Unlock()
	m.Complete(m.Len, m.Peer, nil)
}

// cancel withdraws a send. If its bytes are being written just now, the goroutine that writes
// completes it.
func (p *peer) cancel(m *fabric.Msg) {
	p.mu.Lock()
	for _, fr := range p.pipes[0].queue.Take(func(fr *frame) bool { return fr.m == m }) {
		p.room += m.Len + overhead
		p.reuse(fr)
		p.mu.Unlock()
		m.Complete(0, m.Peer, fabric.ErrCanceled)
		return
	}
	for _, o := range p.out {
		if o.m != m {
			continue
		}
		if o.busy > 0 {
			o.canceled = true
			break
		}
		if o.queued {
			p.bulk.Remove(o)
		}
		p.retract(o.id)
		p.drop(o)
		p.mu.Unlock()
		m.Complete(0, m.Peer, fabric.ErrCanceled)
		p.pipes[0].write(portion)
		return
	}
	p.mu.Unlock()
}
