package shm

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// goodbyeTime bounds how long Close waits for a peer that doesn't read its socket.
const goodbyeTime = time.Second

// Close implements fabric.Fabric. It waits, at most until ctx ends, for peers that
// are reading messages of this rank right now. Spaces must have been closed before.
func (f *Fabric) Close(ctx context.Context) error {
	var err error
	f.closing.Do(func() { err = f.close(ctx) })
	return err
}

func (f *Fabric) close(ctx context.Context) error {
	f.Shut()
	close(f.stop)
	if f.unhook != nil {
		f.unhook()
	}
	f.kick()
	f.Drop()

	f.acquire()
	f.endPulls(fabric.ErrClosed)
	f.finishSends(ctx)
	f.down = true
	f.unlock()

	deadline := time.Now().Add(goodbyeTime)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	var links sync.WaitGroup
	for _, p := range f.near {
		p.link.send(fields{Kind: frameGoodbye}.encode(nil), -1)
		links.Go(func() { p.link.close(deadline) })
	}
	links.Wait()
	f.kick()
	f.workers.Wait()

	f.bellMu.Lock()
	f.inboxGone = true
	f.bellMu.Unlock()
	f.offers.close()
	var errs []error
	for _, p := range f.near {
		p.maps.fail(fabric.ErrClosed)
		errs = append(errs, p.maps.unmap(), p.mapping.Unmap())
	}
	return errors.Join(append(errs, f.inbox.Close())...)
}

var errKilled = errors.New("killed")

// Kill drops every link without a goodbye, as a crash would: for tests.
func (f *Fabric) Kill() {
	for _, p := range f.near {
		p.link.abandon(errKilled)
	}
}

// endPulls completes every receive that copies. The progress lock is held.
func (f *Fabric) endPulls(err error) {
	s := &f.pulls
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.gather()
	for _, x := range s.active {
		f.finish(x, err)
	}
	s.active = nil
	for _, p := range f.near {
		f.failPulls(p, err)
	}
}

// finishSends completes every send: those that a peer is reading once it has
// finished, the others at once. The progress lock is held.
func (f *Fabric) finishSends(ctx context.Context) {
	start := time.Now()
	for left := f.revokeAll(); left > 0 && ctx.Err() == nil && time.Since(start) < cancelTime(left); left = f.revokeAll() {
		time.Sleep(20 * time.Microsecond)
	}
	for _, p := range f.near {
		p.fail(fabric.ErrClosed)
	}
}

// revokeAll takes back all sends that aren't being read, and returns how many bytes the others have.
func (f *Fabric) revokeAll() (left int) {
	for _, p := range f.near {
		if a := p.acks.Load(); a != p.acked {
			p.collect(a)
		}
		p.mu.Lock()
		for !p.queue.Empty() {
			p.queue.Pop().Complete(0, p.rank, fabric.ErrClosed)
		}
		p.outs.all(func(id uint64, o *outgoing) {
			if !p.revoke(id, o, fabric.ErrClosed) {
				left += o.m.Len
			}
		})
		p.mu.Unlock()
	}
	return left
}
