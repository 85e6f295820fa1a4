package opencl

import (
	"context"
	"runtime"
	"time"

	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// joinAfter is how long a wait asks for its ticket before a thread joins in. Small work is over by then. On a processor
// of one core the thread joins in at once, since the library has none of its own there.
const joinAfter = 20 * time.Microsecond

// await waits for the ticket, or until ctx ends. at says what is waited for.
func (t *ticket) await(ctx context.Context, op string, at func() string) error {
	if t.Over() {
		return nil
	}
	b := t.s.b
	if t.brief && b.Props.Processor && b.heavy.Load() == 0 {
		if t.enter(); t.Over() {
			return nil
		}
	}
	if b.Props.Processor {
		begin := time.Now()
		if b.Props.Units == 1 {
			t.join()
		}
		for time.Since(begin) < joinAfter {
			runtime.Gosched()
			if t.Over() {
				return nil
			}
		}
		if ctx.Err() != nil { // it's a look: no thread wakes for that
			return b.Late(ctx, op, at, begin)
		}
		select {
		case <-t.join():
		case <-ctx.Done():
			return b.Late(ctx, op, at, begin)
		}
	}
	return b.Await(ctx, op, func() (bool, error) { return t.Over(), nil }, at)
}

// enter waits for the ticket in the library, on the calling thread, which takes part in the work from the beginning.
// The end of a context would not end this, so that it's for brief work.
func (t *ticket) enter() {
	t.mu.Lock()
	b := t.s.b
	if t.done || b.EventRetain(t.e) != abi.Success {
		t.mu.Unlock()
		return
	}
	e := dl.Heap(&[1]abi.Event{t.e})
	t.mu.Unlock()
	b.EventWait(1, &e[0])
	b.EventFree(e[0])
}

// join has a thread wait for the ticket in the library, which may give it a part of the work: Intel's runs kernels of a
// processor on one thread fewer than there are cores, and on those that wait. The channel is closed when the library has
// returned, which need not mean that the work is done. There is one such thread for a ticket.
func (t *ticket) join() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.joined != nil {
		return t.joined
	}
	over := make(chan struct{})
	b := t.s.b
	if t.done || b.EventRetain(t.e) != abi.Success {
		close(over)
		return over
	}
	t.joined = over
	e := dl.Heap(&[1]abi.Event{t.e})
	go func() {
		defer close(over)
		b.EventWait(1, &e[0])
		b.EventFree(e[0])
	}()
	return over
}
