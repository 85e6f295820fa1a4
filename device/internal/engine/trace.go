package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// trace keeps the activities of a time.
type trace struct {
	mu   sync.Mutex
	list []driver.Activity
	over bool
}

// TraceStart is [driver.Tracer].TraceStart.
func (e *Engine) TraceStart() error {
	if !e.trace.CompareAndSwap(nil, new(trace)) {
		return driver.Errorf(driver.ErrInvalidArgument, e.name, "start trace", "there is a trace already")
	}
	return nil
}

// TraceStop is [driver.Tracer].TraceStop.
func (e *Engine) TraceStop() ([]driver.Activity, error) {
	tr := e.trace.Swap(nil)
	if tr == nil {
		return nil, driver.Errorf(driver.ErrInvalidArgument, e.name, "stop trace", "there is no trace")
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.over = true
	slices.SortStableFunc(tr.list, func(a, b driver.Activity) int { return a.Start.Compare(b.Start) })
	return tr.list, nil
}

// TracePush is [driver.Tracer].TracePush.
func (e *Engine) TracePush(h driver.StreamHandle, external uint64) error {
	s, err := e.stream("push external ID", h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.external = append(s.external, external)
	return nil
}

// TracePop is [driver.Tracer].TracePop.
func (e *Engine) TracePop(h driver.StreamHandle) (uint64, error) {
	s, err := e.stream("pop external ID", h)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.external) - 1
	if n < 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, s.dev.name, "pop external ID", "stream %#x has none", uintptr(h))
	}
	id := s.external[n]
	s.external = s.external[:n]
	return id, nil
}

func (tr *trace) add(a driver.Activity) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.over {
		tr.list = append(tr.list, a)
	}
}

// call notes the host's call that enqueues a task, and marks the task as one to be traced.
func (tr *trace) call(s *stream, t *task, op string, begin time.Time) {
	t.trace, t.cor = tr, s.e.lastCor.Add(1)
	s.mu.Lock()
	if n := len(s.external); n > 0 {
		t.external = s.external[n-1]
	}
	s.mu.Unlock()
	tr.add(driver.Activity{Kind: driver.ActivityRuntime, Name: op, Device: s.dev.index, Stream: s.handle,
		Start: begin, End: time.Now(), Correlation: t.cor, External: t.external})
}

// ran notes what ran for a task. A nil trace notes nothing.
func (tr *trace) ran(s *stream, t *task, kind driver.ActivityKind, what fmt.Stringer, start time.Time, bytes int,
	failed bool) {
	if tr == nil {
		return
	}
	tr.add(driver.Activity{Kind: kind, Name: what.String(), Device: s.dev.index, Stream: s.handle, Start: start,
		End:   time.Now(),
		Bytes: bytes, Correlation: t.cor, External: t.external, Failed: failed})
}
