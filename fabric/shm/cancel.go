package shm

import (
	"errors"
	"runtime"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// cancelTime bounds how long a peer may take to finish reading a message that is
// withdrawn. It copies without waiting for a peer, so it's stopped if that takes longer: slowest is
// a tenth of what a core copies that it has for itself.
func cancelTime(bytes int) time.Duration {
	const slowest = 256 << 20 // bytes a second
	return 2*time.Second + time.Duration(float64(bytes)/slowest*float64(time.Second))
}

var errStuck = errors.New("it stopped in the middle of reading a message")

// Cancel implements fabric.Fabric.
func (f *Fabric) Cancel(m *fabric.Msg) {
	var start time.Time
	for i := 0; !m.Done() && !f.Withdraw(m); i++ {
		// Under way: a peer reads it, or another goroutine is about to complete it.
		if f.wanted.Load() == 0 && f.tryLock() {
			if !f.down {
				f.poll()
			}
			f.unlock()
		}
		runtime.Gosched()
		if i < 1000 {
			continue
		}
		time.Sleep(50 * time.Microsecond)
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > cancelTime(m.Len) {
			if p, err := f.peer(m.Peer); err == nil {
				p.failLink(errStuck)
			}
		}
	}
}

// Withdraw is Cancel for a message that can be taken back at once. It reports false
// if a peer is reading the message right now, or if this fabric doesn't hold it.
func (f *Fabric) Withdraw(m *fabric.Msg) bool {
	if f.Match.Withdraw(m, fabric.ErrCanceled) {
		return true
	}
	if m.Peer == f.rank {
		if f.Own.Cancel(f.Match, m, fabric.ErrCanceled) {
			return true
		}
	} else if p, err := f.peer(m.Peer); err == nil && p.withdraw(m, fabric.ErrCanceled) {
		return true
	}
	f.acquire()
	found := !f.down && f.abandonPull(m, fabric.ErrCanceled)
	f.unlock()
	return found
}

// withdraw takes back a message that is posted to the peer.
func (p *peer) withdraw(m *fabric.Msg, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.Remove(m) {
		m.Complete(0, p.rank, err)
		return true
	}
	if m.Priv[1] == 0 { // it was never announced
		return false
	}
	id := m.Priv[0]
	o := p.outs.get(id)
	if o == nil || o.m != m {
		return false
	}
	return p.revoke(id, o, err)
}

// revoke completes an announced message with the error, unless the peer is reading it.
func (p *peer) revoke(id uint64, o *outgoing, err error) bool {
	if o.pulled {
		p.forgetPushed(id)
		p.tellLocked(kindGone, id, o.pull)
	} else if o.claimable {
		w := &p.claims[uint32(id)].word
		if !w.CompareAndSwap(claimWord(id, claimOpen), claimWord(id, claimWithdrawn)) {
			return false
		}
	}
	m := o.m
	p.outs.drop(id)
	m.Complete(0, p.rank, err)
	return true
}
