package engine

import (
	"strings"
	"time"

	"github.com/chorus-comms/chorus/device"
)

// Enter is [device.Turns].Enter.
func (e *Engine) Enter(h device.StreamHandle, name string) (entered bool, err error) {
	s, err := e.stream("enter", h)
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
	s.current, s.since = t, time.Now()
	s.working = true // so that what is enqueued waits for Leave
	return true, nil
}

// Leave is [device.Turns].Leave.
func (e *Engine) Leave(h device.StreamHandle) error {
	s, err := e.stream("leave", h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	t := s.current
	if t == nil || t.kind != taskTurn {
		s.mu.Unlock()
		return device.Errorf(device.ErrInvalidArgument, s.dev.name, "leave", "stream %#x was not entered", uintptr(h))
	}
	if tr := e.trace.Load(); tr != nil {
		s.mu.Unlock()                            // which the trace takes itself; the turn is still the caller's
		t.work.name = strings.Clone(t.work.name) // which was lent until now
		tr.call(s, t, t.work.name, s.since)
		tr.ran(s, t, device.ActivityKernel, t, s.since, 0, false)
		s.mu.Lock()
	}
	s.current = nil
	s.recycleLocked(t)
	if s.first != nil {
		go s.serve()
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
