package engine

import (
	"strings"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// StreamTryAcquire is [driver.CallerRuns].StreamTryAcquire.
func (e *Engine) StreamTryAcquire(h driver.StreamHandle, name string) (entered bool, err error) {
	s, err := e.streams.Find("enter", h)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false, s.err
	}
	if s.capture.Load() != nil || !s.idle() {
		return false, nil
	}
	t := s.newTaskLocked()
	t.kind, t.work.name = taskTurn, name
	s.current, s.since = t, time.Time{}
	if e.trace.Load() != nil { // to ask for the time takes as long as all the rest
		s.since = time.Now()
	}
	s.working = true // so that what is enqueued waits for StreamRelease
	return true, nil
}

// StreamRelease is [driver.CallerRuns].StreamRelease.
func (e *Engine) StreamRelease(h driver.StreamHandle) error {
	s, t, err := e.turn("leave", h)
	if err != nil {
		return err
	}
	if tr := e.trace.Load(); tr != nil {
		t.work.name = strings.Clone(t.work.name) // which was lent until now
		since := s.begunLocked()
		s.mu.Unlock() // which the trace takes itself; the turn is still the caller's
		s.trace(tr, t, t.work.name, since)
		t.traced.Ran(since, false)
		s.mu.Lock()
	}
	s.current = nil
	s.recycleLocked(t)
	if s.first != nil {
		go s.serve(nil)
		s.mu.Unlock()
		return nil
	}
	s.working = false
	gone := s.destroyed
	s.mu.Unlock()
	if gone {
		s.forget()
	}
	return nil
}

// StreamContinue is [driver.CallerRuns].StreamContinue.
func (e *Engine) StreamContinue(h driver.StreamHandle, rest func() error) error {
	s, t, err := e.turn("hand over", h)
	if err != nil {
		return err
	}
	if rest == nil {
		s.mu.Unlock()
		return driver.Errorf(driver.ErrInvalidArgument, s.dev.name, "hand over", "%s: no function", t.work.name)
	}
	t.kind, t.work = taskWork, work{kind: driver.ActivityHost, name: strings.Clone(t.work.name), host: rest}
	since := s.begunLocked()
	s.mu.Unlock()
	s.trace(e.trace.Load(), t, t.work.name, since)
	go s.serve(t)
	return nil
}

// begunLocked returns when a turn began. A turn that wasn't traced at its begin counts from the first call.
func (s *stream) begunLocked() time.Time {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	return s.since
}

// turn locks a stream that was entered, and returns the task of that.
func (e *Engine) turn(op string, h driver.StreamHandle) (*stream, *task, error) {
	s, err := e.streams.Find(op, h)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	if t := s.current; t != nil && t.kind == taskTurn {
		return s, t, nil
	}
	s.mu.Unlock()
	return nil, nil, driver.Errorf(driver.ErrInvalidArgument, s.dev.name, op, "stream %#x was not entered", uintptr(h))
}
