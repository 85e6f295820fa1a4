package engine

import (
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

type taskKind uint8

const (
	taskWork    taskKind = iota
	taskMark             // a point is reached
	taskRecover          // the same, and the stream's error ends here
	taskWait             // a point of another stream must be reached
	taskGraph
	taskTurn // a thread of the host is at work
)

type task struct {
	next   *task
	kind   taskKind
	work   work
	bound  bound
	point  *point
	run    *run
	traced *traces.Work // nil: it isn't
}

// activity is what the task is for a trace.
func (t *task) activity() driver.ActivityKind {
	switch t.kind {
	case taskWork:
		return t.work.kind
	case taskWait:
		return driver.ActivityWait
	case taskGraph:
		return driver.ActivityGraph
	}
	return driver.ActivityKernel
}

func (t *task) String() string {
	switch t.kind {
	case taskWork:
		return t.work.String()
	case taskWait:
		return "wait for an event"
	case taskGraph:
		return "graph"
	case taskTurn:
		return t.work.name
	}
	return "record"
}

// HostFunc is [driver.Streams].HostFunc.
func (e *Engine) HostFunc(h driver.StreamHandle, name string, f func() error) error {
	return e.submit("host function", h, work{kind: driver.ActivityHost, name: name, host: f})
}

// Copy is [driver.Memory].Copy.
func (e *Engine) Copy(h driver.StreamHandle, dst, src driver.Ptr, bytes int, kind driver.CopyKind) error {
	return e.submit("copy", h, work{kind: driver.ActivityCopy, dst: dst, src: src, bytes: bytes, between: kind})
}

// Fill is [driver.Memory].Fill.
func (e *Engine) Fill(h driver.StreamHandle, dst driver.Ptr, value byte, bytes int) error {
	return e.submit("fill", h, work{kind: driver.ActivityFill, dst: dst, value: value, bytes: bytes})
}

// Launch is [driver.HostKernels].Launch.
func (e *Engine) Launch(h driver.StreamHandle, name string, operands []driver.Span,
	f func(views []unsafe.Pointer) error) error {
	return e.submit("launch", h, work{kind: driver.ActivityKernel, name: name, operands: operands, kernel: f})
}

// submit checks work and enqueues it, or adds it to the stream's capture.
func (e *Engine) submit(op string, h driver.StreamHandle, w work) error {
	tr := e.trace.Load()
	var begin time.Time
	if tr != nil {
		begin = time.Now()
	}
	s, err := e.streams.Find(op, h)
	if err != nil {
		return err
	}
	t := s.newTask()
	t.work = w
	if err := e.bind(s.dev, &t.work, &t.bound); err != nil {
		s.recycle(t)
		return err
	}
	if captured, err := s.captureWork(&t.work); captured {
		t.bound.drop()
		s.recycle(t)
		return err
	}
	s.trace(tr, t, op, begin)
	s.push(t)
	return nil
}

// mostSpares bounds the tasks that a stream keeps for reuse: as many as are enqueued at a time in ordinary programs.
const mostSpares = 256

func (s *stream) newTask() *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newTaskLocked()
}

func (s *stream) newTaskLocked() *task {
	t := s.spare
	if t == nil {
		return new(task)
	}
	s.spare, t.next = t.next, nil
	s.spares--
	return t
}

func (s *stream) recycle(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recycleLocked(t)
}

func (s *stream) recycleLocked(t *task) {
	if s.spares == mostSpares {
		return
	}
	s.spares++
	*t = task{next: s.spare, bound: bound{operands: t.bound.operands[:0]}}
	s.spare = t
}

// markLocked enqueues that a point is reached.
func (s *stream) markLocked(p *point) {
	t := s.newTaskLocked()
	t.kind, t.point = taskMark, p
	s.pushLocked(t)
}

// push enqueues a task, and starts a goroutine to run it if there's none.
func (s *stream) push(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushLocked(t)
}

func (s *stream) pushLocked(t *task) {
	if s.last == nil {
		s.first = t
	} else {
		s.last.next = t
	}
	s.last = t
	s.behind++
	if !s.working {
		s.working = true
		go s.serve(nil)
	}
}
