package engine

import (
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

// TraceStart is [driver.Tracer].TraceStart.
func (e *Engine) TraceStart() error {
	_, err := e.trace.Start(e.name)
	return err
}

// TraceStop is [driver.Tracer].TraceStop.
func (e *Engine) TraceStop() ([]driver.Activity, error) { return e.trace.Stop(e.name) }

// TracePush is [driver.Tracer].TracePush.
func (e *Engine) TracePush(h driver.StreamHandle, external uint64) error {
	s, err := e.streams.Find("push external ID", h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.external.Push(external)
	return nil
}

// TracePop is [driver.Tracer].TracePop.
func (e *Engine) TracePop(h driver.StreamHandle) (uint64, error) {
	s, err := e.streams.Find("pop external ID", h)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.external.Pop(s.dev.name, h)
}

// trace notes the host's call that enqueues a task, and marks the task as one to be traced. A nil trace notes nothing.
func (s *stream) trace(tr *traces.Trace, t *task, op string, begin time.Time) {
	if tr == nil {
		return
	}
	s.mu.Lock()
	external := s.external.Innermost()
	s.mu.Unlock()
	w := tr.Call(op, driver.Activity{Kind: t.activity(), Name: t.String(), Bytes: t.work.bytes, Device: s.dev.index,
		Stream: s.handle, External: external}, begin)
	t.traced = &w
}
