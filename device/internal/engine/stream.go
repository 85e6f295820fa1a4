package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

// stream runs tasks one after the other.
type stream struct {
	base.Entry[driver.StreamHandle, *stream]
	e       *Engine
	dev     *dev
	handle  driver.StreamHandle
	level   int
	capture atomic.Pointer[capture] // changed under e.capmu
	tailOf  []int                   // in a capture: the nodes that the stream's next one comes after; under e.capmu

	mu          sync.Mutex
	first, last *task
	current     *task
	since       time.Time // when current began
	behind      int       // tasks in the list
	spare       *task     // for reuse
	spares      int
	working     bool // a goroutine runs tasks, or a thread of the host has entered
	destroyed   bool
	err         *driver.WorkError
	external    traces.IDs
}

// carried returns what a stream carries as an error.
func carried(f *driver.WorkError) error {
	if f == nil {
		return nil
	}
	return f
}

// StreamCreate is [driver.Streams].StreamCreate.
func (e *Engine) StreamCreate(index, priority int) (driver.StreamHandle, error) {
	d, err := e.dev("create stream", index)
	if err != nil {
		return 0, err
	}
	if priority < 0 || priority >= d.levels {
		return 0, driver.Errorf(driver.ErrInvalidArgument, d.name, "create stream", "priority %d is not in [0, %d)", priority,
			d.levels)
	}
	s := &stream{e: e, dev: d, level: priority, handle: driver.StreamHandle(e.numbers.Next())}
	d.mu.Lock()
	d.streams[s] = struct{}{}
	d.mu.Unlock()
	e.streams.Put(s.handle, s)
	return s.handle, nil
}

// StreamDestroy is [driver.Streams].StreamDestroy.
func (e *Engine) StreamDestroy(h driver.StreamHandle) error {
	s, err := e.streams.Find("destroy stream", h)
	if err != nil {
		return err
	}
	if s.capture.Load() != nil {
		return driver.Errorf(driver.ErrCapture, s.dev.name, "destroy stream", "stream %#x is being captured", uintptr(h))
	}
	if _, err := e.streams.Take("destroy stream", h); err != nil {
		return err // another goroutine was faster
	}
	s.mu.Lock()
	s.destroyed = true
	idle := s.idle()
	s.mu.Unlock()
	if idle {
		s.forget()
	}
	return nil
}

func (s *stream) forget() {
	s.dev.mu.Lock()
	delete(s.dev.streams, s)
	s.dev.mu.Unlock()
}

// StreamQuery is [driver.Streams].StreamQuery.
func (e *Engine) StreamQuery(h driver.StreamHandle) (bool, error) {
	s, err := e.streams.Find("query stream", h)
	if err == nil {
		err = s.refuseCaptured("query it")
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle(), carried(s.err)
}

// StreamSynchronize is [driver.Streams].StreamSynchronize.
func (e *Engine) StreamSynchronize(ctx context.Context, h driver.StreamHandle) error {
	s, err := e.streams.Find("synchronize stream", h)
	if err == nil {
		err = s.refuseCaptured("synchronize it")
	}
	if err != nil {
		return err
	}
	return s.await(ctx, "synchronize stream", s.tail())
}

// StreamRecover is [driver.Streams].StreamRecover.
func (e *Engine) StreamRecover(ctx context.Context, h driver.StreamHandle) error {
	s, err := e.streams.Find("recover stream", h)
	if err == nil {
		err = s.refuseCaptured("recover it")
	}
	if err != nil {
		return err
	}
	p, t := new(point), s.newTask()
	t.kind, t.point = taskRecover, p
	s.push(t)
	return s.await(ctx, "recover stream", p)
}

func (s *stream) idle() bool { return s.first == nil && s.current == nil }

// tail returns the point at which all work enqueued so far is done.
func (s *stream) tail() *point {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.idle() && s.err == nil:
		return calm
	case s.idle():
		return reached(s.err)
	}
	p := new(point)
	s.markLocked(p)
	return p
}

// serve runs tasks until there are none, from begun on, if there is one that is the current one already.
func (s *stream) serve(begun *task) {
	debug.SetPanicOnFault(true) // a kernel that touches what it must not is an error, not the end of the process
	done := false
	defer func() {
		if !done { // a function of the user's has called runtime.Goexit
			s.fail(s.current, errGone)
			s.finish(s.current)
			go s.serve(nil)
		}
	}()
	if begun != nil {
		s.perform(begun)
		s.finish(begun)
	}
	for {
		s.mu.Lock()
		t := s.first
		if s.current != nil { // a thread of the host has acquired it: StreamRelease starts the next work
			s.mu.Unlock()
			done = true
			return
		}
		if t == nil {
			s.working = false
			gone := s.destroyed
			s.mu.Unlock()
			if gone {
				s.forget()
			}
			done = true
			return
		}
		if s.first = t.next; s.first == nil {
			s.last = nil
		}
		s.behind--
		s.current, s.since = t, time.Now()
		s.mu.Unlock()
		if t.kind == taskMark || t.kind == taskRecover {
			s.mark(t)
			continue
		}
		s.perform(t)
		s.finish(t)
	}
}

// mark lets a point be reached. The task is over before, so that its waiters find the stream idle if nothing follows.
func (s *stream) mark(t *task) {
	p, f := t.point, s.carries()
	if t.kind == taskRecover {
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
	}
	s.finish(t)
	p.reach(f)
}

func (s *stream) finish(t *task) {
	t.bound.drop()
	s.mu.Lock()
	s.current = nil
	s.recycleLocked(t)
	s.mu.Unlock()
}

func (s *stream) carries() *driver.WorkError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// perform runs one task. The stream's error is written by this goroutine only.
func (s *stream) perform(t *task) {
	switch t.kind {
	case taskWait:
		if s.carries() != nil {
			return
		}
		start := time.Now()
		<-t.point.done()
		t.traced.Ran(start, false)
		if f := t.point.err; f != nil {
			s.carry(f)
		}
	case taskGraph:
		s.runGraph(t)
	case taskWork:
		if s.carries() != nil {
			return
		}
		start := time.Now()
		err := s.e.execute(s.dev, s.level, &t.work, &t.bound)
		t.traced.Ran(start, err != nil)
		if err != nil {
			s.fail(t, err)
		}
	}
}

// fail lets the stream carry what a task failed with.
func (s *stream) fail(t fmt.Stringer, err error) {
	s.carry(&driver.WorkError{Device: s.dev.name, Stream: s.handle, Work: t.String(), At: time.Now(), Err: err})
}

func (s *stream) carry(f *driver.WorkError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = f
	}
}

// await waits for a point of the stream.
func (s *stream) await(ctx context.Context, op string, p *point) error {
	if p.isReached() { // first, so that what is done is done whatever the context says
		return carried(p.err)
	}
	select {
	case <-p.done():
		return carried(p.err)
	case <-ctx.Done():
		return gaveUp(ctx, s.dev.name, op, s.state())
	}
}

// gaveUp is the error of a wait that a context ended.
func gaveUp(ctx context.Context, name, op, state string) error {
	kind := driver.ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = driver.ErrTimeout
	}
	e := driver.Errorf(kind, name, op, "%s", state)
	e.Err = context.Cause(ctx)
	return e
}

// state tells what the stream is at.
func (s *stream) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.current != nil && s.current.kind == taskTurn:
		return fmt.Sprintf("stream %#x is at %q, which a thread of the host does, with %d more behind it",
			uintptr(s.handle), s.current, s.behind)
	case s.current != nil:
		return fmt.Sprintf("stream %#x has been at %q for %v, with %d more behind it",
			uintptr(s.handle), s.current, time.Since(s.since).Round(time.Millisecond), s.behind)
	case s.first != nil:
		return fmt.Sprintf("stream %#x is about to begin %q", uintptr(s.handle), s.first)
	}
	return fmt.Sprintf("stream %#x is idle", uintptr(s.handle))
}

// Busy describes a stream that has work to do, empty if none has.
func (e *Engine) Busy() string {
	for _, d := range e.devs {
		d.mu.Lock()
		for s := range d.streams {
			if s.mu.Lock(); !s.idle() {
				s.mu.Unlock()
				d.mu.Unlock()
				return s.state()
			}
			s.mu.Unlock()
		}
		d.mu.Unlock()
	}
	return ""
}
