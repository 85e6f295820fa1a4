package opencl

import (
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
	"github.com/chorus-comms/chorus/device/internal/traces"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// callbacks are what is done when events of the library have happened, by event.
var callbacks = struct {
	sync.Mutex
	all   map[abi.Event]func()
	entry dl.Func // what the library calls; one for the process
}{all: map[abi.Event]func(){}}

// when calls f, on a goroutine, when an event has happened. The library holds the event until then.
func (b *dev) when(e abi.Event, f func()) error {
	const op = "await an event"
	if err := b.result(op, "clRetainEvent", b.EventRetain(e)); err != nil {
		return err
	}
	callbacks.Lock()
	if callbacks.entry == 0 {
		callbacks.entry = dl.Callback(called)
	}
	before := callbacks.all[e]
	callbacks.all[e] = func() {
		if before != nil {
			before()
		}
		f()
		b.EventFree(e)
	}
	callbacks.Unlock()
	if before != nil {
		return nil // called already when the first one is
	}
	err := b.result(op, "clSetEventCallback", b.EventCall(e, abi.Complete, uintptr(callbacks.entry), 0))
	if err != nil {
		callbacks.Lock()
		delete(callbacks.all, e)
		callbacks.Unlock()
		b.EventFree(e)
	}
	return err
}

// called is what the library calls, on a thread of its own, on which its functions may not be called.
func called(e uintptr) {
	callbacks.Lock()
	f := callbacks.all[abi.Event(e)]
	delete(callbacks.all, abi.Event(e))
	callbacks.Unlock()
	if f != nil {
		go f()
	}
}

// hold holds the stream's later work back until let is called. The stream is locked.
func (s *stream) hold(op string) (let func(), err error) {
	b, r := s.b, new(abi.Result)
	u := dl.Heap(&[1]abi.Event{b.EventMake(b.space.h, r)})
	if err := b.result(op, "clCreateUserEvent", *r); err != nil {
		return nil, err
	}
	let = func() {
		b.EventSet(u[0], abi.Complete)
		b.EventFree(u[0])
	}
	s.enqueues(0)
	if err = b.result(op, "clEnqueueBarrierWithWaitList", b.Barrier(s.q, 1, &u[0], nil)); err == nil {
		err = b.result(op, "clFlush", b.Flush(s.q))
	}
	if err != nil {
		let()
		return nil, err
	}
	return let, nil
}

// function is a function of the host that is enqueued.
type function struct {
	name    string
	f       func() error
	s       *stream
	outcome *outcome.Result
	let     func()
	traced  traces.Work
}

// HostFunc is that of [base.Front]. The function runs on a goroutine, and may call the driver.
func (s *stream) HostFunc(op, name string, f func() error) error {
	return s.submit(op, work{kind: driver.ActivityHost, name: name, run: func(s *stream) error {
		return s.function(name, f)
	}})
}

// function enqueues a function, unless the stream carries an error. It's locked.
func (s *stream) function(name string, f func() error) error {
	const op = "host function"
	if s.broken() != nil {
		return s.b.Broken() // left out
	}
	t, err := s.newTicket(op, false)
	if err != nil {
		return err
	}
	x := &function{name: name, f: f, s: s, outcome: s.outcome.After(1)}
	if x.let, err = s.hold(op); err != nil {
		return err
	}
	s.queued.Add(1)
	s.outcome = x.outcome
	if tr := s.b.d.trace.Load(); tr != nil {
		x.traced = s.calls(tr, op, driver.Activity{Kind: driver.ActivityHost, Name: name}, time.Now())
	}
	err = s.b.when(t.e, x.run)
	if err != nil {
		x.outcome.Ran(s.failure(name, err))
		s.queued.Add(-1)
		x.let()
	}
	return nil
}

// run runs the function, unless something that it comes after has failed, and lets the stream go on.
func (x *function) run() {
	s := x.s
	s.at.Store(x)
	failed, _ := x.outcome.Failed()
	if failed == nil {
		failed = s.broke.Load()
	}
	if failed == nil {
		begin := time.Now()
		if err := base.Call(x.f); err != nil {
			failed = s.failure(x.name, err)
		}
		x.traced.Ran(begin, failed != nil)
	}
	s.at.CompareAndSwap(x, nil)
	s.queued.Add(-1)
	x.outcome.Ran(failed)
	x.let()
}
