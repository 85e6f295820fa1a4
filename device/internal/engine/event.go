package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
)

// point is a moment in the order of a stream.
type point struct {
	err   *driver.WorkError // what the stream carried then
	then  func()            // called just after, if not nil
	timed bool              // at is wanted
	at    time.Time         // when it was reached

	s       *stream  // on which it was recorded; nil for a mark of the engine's own
	capture *capture // in which it was recorded, if it was
	nodes   []int    // the nodes that it stands for in that

	over    atomic.Bool // it was reached: err and at are final
	mu      sync.Mutex
	waiters chan struct{} // closed when it's reached; made for the first waiter, as most points have none
}

// always is a channel that is closed.
var always = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// done is closed when the point is reached.
func (p *point) done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over.Load() {
		return always
	}
	if p.waiters == nil {
		p.waiters = make(chan struct{})
	}
	return p.waiters
}

// calm is the point of a stream that has nothing to do and nothing to tell.
var calm = reached(nil)

// reached returns a point that is reached already.
func reached(f *driver.WorkError) *point {
	p := new(point)
	p.reach(f)
	return p
}

func (p *point) reach(f *driver.WorkError) {
	if p.err = f; p.timed {
		p.at = time.Now()
	}
	p.mu.Lock()
	p.over.Store(true)
	if p.waiters != nil {
		close(p.waiters)
	}
	p.mu.Unlock()
	if p.then != nil {
		p.then()
	}
}

func (p *point) isReached() bool { return p.over.Load() }

// event stands for its last point.
type event struct {
	base.Entry[driver.EventHandle, *event]
	dev    *dev
	timing bool
	mu     sync.Mutex
	last   *point // nil: never recorded

	shared Shared // what other processes see; nil for most events, and when it was destroyed
	number uint64 // of the last record, if it's shared
}

func (v *event) point() *point {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shared != nil {
		v.follow()
	}
	return v.last
}

// EventCreate is [driver.Events].EventCreate.
func (e *Engine) EventCreate(index int, timing bool) (driver.EventHandle, error) {
	d, err := e.dev("create event", index)
	if err != nil {
		return 0, err
	}
	return e.events.Add(&event{dev: d, timing: timing}), nil
}

// EventDestroy is [driver.Events].EventDestroy.
func (e *Engine) EventDestroy(h driver.EventHandle) error {
	v, err := e.events.Take("destroy event", h)
	if err == nil {
		v.unshare()
	}
	return err
}

// EventRecord is [driver.Events].EventRecord.
func (e *Engine) EventRecord(h driver.EventHandle, sh driver.StreamHandle) error {
	v, err := e.events.Find("record", h)
	if err != nil {
		return err
	}
	s, err := e.streams.Find("record", sh)
	if err != nil {
		return err
	}
	if v.dev != s.dev {
		return driver.Errorf(driver.ErrWrongDevice, e.name, "record", "the event is of %s, the stream of %s", v.dev.name,
			s.dev.name)
	}
	p := &point{s: s, timed: v.timing}
	if v.isShared() {
		if err := s.refuseCaptured("record an event of several processes in it"); err != nil {
			return err
		}
	}
	if s.captureRecord(p) {
		v.mu.Lock()
		v.last = p
		v.mu.Unlock()
		return nil
	}
	// The event's lock is held over both, so that records of one event on several streams agree on which is the last.
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shared != nil {
		if err := v.share(p); err != nil {
			return err
		}
	}
	v.last = p
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle() {
		p.reach(s.err)
	} else {
		s.markLocked(p)
	}
	return nil
}

// StreamWaitEvent is [driver.Streams].StreamWaitEvent.
func (e *Engine) StreamWaitEvent(sh driver.StreamHandle, h driver.EventHandle) error {
	s, err := e.streams.Find("wait for event", sh)
	if err != nil {
		return err
	}
	v, err := e.events.Find("wait for event", h)
	if err != nil {
		return err
	}
	p := v.point()
	if captured, err := s.captureWait(p); captured || err != nil {
		return err
	}
	if p == nil || p.s == s || p.isReached() && p.err == nil {
		return nil // nothing to wait for, or what the order of the stream gives anyway
	}
	t := s.newTask()
	t.kind, t.point = taskWait, p
	if tr := e.trace.Load(); tr != nil {
		s.trace(tr, t, "wait for event", time.Now())
	}
	s.push(t)
	return nil
}

// hostPoint returns the point that a host's question about an event is about.
func (e *Engine) hostPoint(op string, h driver.EventHandle) (*event, *point, error) {
	v, err := e.events.Find(op, h)
	if err != nil {
		return nil, nil, err
	}
	p := v.point()
	if p != nil && p.capture != nil {
		p.capture.invalidate(e, op+" of an event recorded in it")
		return nil, nil, driver.Errorf(driver.ErrCapture, v.dev.name, op,
			"the event was last recorded in a capture: it never happens by itself")
	}
	return v, p, nil
}

// EventQuery is [driver.Events].EventQuery.
func (e *Engine) EventQuery(h driver.EventHandle) (bool, error) {
	_, p, err := e.hostPoint("query event", h)
	if err != nil || p == nil {
		return err == nil, err
	}
	if !p.isReached() {
		return false, nil
	}
	return true, carried(p.err)
}

// EventSynchronize is [driver.Events].EventSynchronize.
func (e *Engine) EventSynchronize(ctx context.Context, h driver.EventHandle) error {
	v, p, err := e.hostPoint("synchronize event", h)
	if err != nil || p == nil {
		return err
	}
	if p.s == nil {
		return p.awaitOther(ctx, v.dev.name)
	}
	return p.s.await(ctx, "synchronize event", p)
}

// EventElapsed is [driver.Events].EventElapsed.
func (e *Engine) EventElapsed(start, end driver.EventHandle) (time.Duration, error) {
	var at [2]time.Time
	var d *dev
	for i, h := range []driver.EventHandle{start, end} {
		v, p, err := e.hostPoint("elapsed time", h)
		switch {
		case err != nil:
			return 0, err
		case !v.timing:
			return 0, driver.Errorf(driver.ErrInvalidArgument, v.dev.name, "elapsed time", "event %#x was made without timing",
				uintptr(h))
		case p == nil:
			return 0, driver.Errorf(driver.ErrInvalidArgument, v.dev.name, "elapsed time", "event %#x was never recorded",
				uintptr(h))
		case d != nil && d != v.dev:
			return 0, driver.Errorf(driver.ErrWrongDevice, e.name, "elapsed time", "one event is of %s, the other of %s", d.name,
				v.dev.name)
		case !p.isReached():
			return 0, driver.Errorf(driver.ErrNotReady, v.dev.name, "elapsed time", "event %#x is still to come", uintptr(h))
		}
		d, at[i] = v.dev, p.at
	}
	return at[1].Sub(at[0]), nil
}
