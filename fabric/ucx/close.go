package ucx

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
)

// Close implements fabric.Fabric. It waits until the peers have what was sent to them, for as long as ctx allows and
// closeGrace at most.
func (f *Fabric) Close(ctx context.Context) error {
	f.once.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, closeGrace)
		defer cancel()
		f.Shut()
		f.Drop()
		f.dropPosted()
		f.until(ctx, func() bool { return !f.moving() && !f.waiting() })
		f.mu.Lock()
		for _, p := range f.linked() {
			p.note(kindGoodbye, 0, 0)
			p.said = true
		}
		f.mu.Unlock()
		f.until(ctx, func() bool {
			for _, p := range f.linked() {
				if p.said && !p.answered {
					return false
				}
			}
			return len(f.ending) == 0
		})
		f.flush(ctx)
		f.end()
	})
	return nil
}

// Kill drops every endpoint without a goodbye, as a crash would: for tests.
func (f *Fabric) Kill() {
	f.once.Do(func() {
		f.Shut()
		f.Drop()
		f.dropPosted()
		f.end()
	})
}

// linked returns the peers that there's an endpoint for. The caller holds the lock.
func (f *Fabric) linked() (all []*peer) {
	for _, p := range f.peers {
		if p != nil && p.endpoint != 0 && p.err == nil {
			all = append(all, p)
		}
	}
	return all
}

// moving reports whether bytes of messages are under way. The caller holds the lock.
func (f *Fabric) moving() bool {
	if len(f.receives) > 0 {
		return true
	}
	for _, t := range f.sends {
		if t.out != nil {
			return true
		}
	}
	return false
}

// dropPosted completes what UCX doesn't have yet.
func (f *Fabric) dropPosted() {
	f.mu.Lock()
	var all []*fabric.Msg
	for _, p := range f.peers {
		if p != nil {
			all = append(all, p.takeAsking()...)
			f.cancelReceives(p)
		}
	}
	f.mu.Unlock()
	for _, m := range all {
		m.Complete(0, m.Peer, fabric.ErrClosed)
	}
}

// until makes progress until a condition holds, for which it takes the lock.
func (f *Fabric) until(ctx context.Context, holds func() bool) {
	for i := 0; ; i++ {
		f.mu.Lock()
		f.unsure = true
		ok := holds()
		f.mu.Unlock()
		if ok || ctx.Err() != nil {
			return
		}
		if !f.progress() {
			runtime.Gosched()
			if i > 100 {
				time.Sleep(20 * time.Microsecond)
			}
		}
	}
}

// flush waits until what was sent is on its way.
func (f *Fabric) flush(ctx context.Context) {
	f.mu.Lock()
	var all []uintptr
	for _, p := range f.linked() {
		if r := f.w.flush(p.endpoint); r != 0 {
			all = append(all, r)
		}
	}
	f.mu.Unlock()
	f.until(ctx, func() bool {
		for _, r := range all {
			if f.w.status(r) == abi.InProgress {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	for _, r := range all {
		if f.w.status(r) != abi.InProgress {
			f.w.free(r)
		}
	}
	f.mu.Unlock()
}

// end frees everything. Endpoints that are open are closed.
func (f *Fabric) end() {
	f.stop()
	if f.late != nil {
		f.late.Stop()
	}
	f.watcher.close()
	f.tasks.Wait()
	f.mu.Lock()
	for _, p := range f.peers {
		if p != nil {
			p.hangUp()
		}
	}
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	f.until(ctx, func() bool { return len(f.ending) == 0 })
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	for _, p := range f.peers {
		if p != nil {
			f.abandon(p)
			peerNumbers.all.Delete(p.number)
		}
	}
	f.gone = true
	f.reserve.release()
	for _, i := range f.ring.order {
		f.w.cancel(f.ring.requests[i])
		f.w.free(f.ring.requests[i])
	}
	f.w.close()
	f.mu.Unlock()
	f.complete()
}

// waiting reports whether frames wait for their peer to connect. The caller holds the lock.
func (f *Fabric) waiting() bool {
	return slices.ContainsFunc(f.peers, func(p *peer) bool { return p != nil && len(p.early) > 0 })
}
