package opencl

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
	"github.com/chorus-comms/chorus/device/internal/traces"
	"github.com/chorus-comms/chorus/device/opencl/abi"
)

// stream is a queue of the library, which runs its commands in order.
type stream struct {
	base.Entry[driver.StreamHandle, *stream]
	base.Stream
	b *dev
	h driver.StreamHandle
	q abi.Queue

	priority int
	profiles bool // the queue keeps times

	broke atomic.Pointer[driver.WorkError] // a command has failed

	dirty   bool    // there is work behind tail
	burden  burden  // of work that may not be done
	tail    *ticket // the last that was made
	turn    turn
	launch  launch // memory of the launch that is being enqueued
	outcome *outcome.Result
	at      atomic.Pointer[function]
	queued  atomic.Int32         // functions that have not run
	lane    atomic.Pointer[lane] // of the capture that the stream is in; changed with Driver.capturing
}

// Device is that of [base.Front].
func (s *stream) Device() *base.Device { return &s.b.Device }

// stream finds a stream, and returns it locked.
func (d *Driver) stream(op string, h driver.StreamHandle) (*stream, error) {
	return base.Enter(d.Streams, op, h)
}

// queue makes a stream of a device, which has no handle yet.
func (b *dev) queue(op string, priority int) (*stream, error) {
	q, err := b.makeQueue(op, priority, false)
	if err != nil {
		return nil, err
	}
	s := &stream{b: b, priority: priority, q: q}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams[s] = true
	return s, nil
}

// makeQueue makes a queue of the library, which keeps times if it's one that profiles: that costs time on some devices.
func (b *dev) makeQueue(op string, priority int, profiles bool) (q abi.Queue, err error) {
	r, bits := new(abi.Result), uint64(0)
	if profiles {
		bits = abi.QueueProfiling
	}
	if b.properties {
		props := []uint64{abi.QueueProperties, bits}
		if b.priorities {
			level := uint64(abi.QueuePriorityMedium)
			if priority > 0 {
				level = abi.QueuePriorityHigh
			}
			props = append(props, abi.QueuePriority, level)
		}
		props = append(props, 0)
		q = b.QueueMake(b.space.h, b.id, &props[0], r)
	} else {
		q = b.QueueMakeOld(b.space.h, b.id, bits, r)
	}
	return q, b.result(op, "clCreateCommandQueue", *r)
}

// profile gives the stream a queue that keeps times, unless it has one: from the first event with a time on, or the
// first command of a trace. It's locked.
func (s *stream) profile(op string) error {
	if s.profiles {
		return nil
	}
	t, err := s.point(op)
	if err != nil {
		return err
	}
	q, err := s.b.makeQueue(op, s.priority, true)
	if err != nil {
		return err
	}
	s.dropPlans()
	before := s.q
	s.q, s.profiles = q, true
	if t.Over() {
		return s.b.result(op, "clReleaseCommandQueue", s.b.QueueFree(before))
	}
	s.b.d.deferred.Behind(s.b, []*ticket{t}, 0, func() { s.b.QueueFree(before) })
	s.dirty = true // the barrier comes behind the tail, which is what it waits for
	return t.before(op, s)
}

// StreamCreate is [driver.Streams].StreamCreate.
func (d *Driver) StreamCreate(dev int, priority int) (driver.StreamHandle, error) {
	const op = "create stream"
	b, err := d.dev(op, dev)
	if err != nil {
		return 0, err
	}
	if err := b.Priority(op, priority); err != nil {
		return 0, err
	}
	s, err := b.queue(op, priority)
	if err != nil {
		return 0, err
	}
	s.Lock()
	defer s.Unlock()
	s.h = d.Streams.Add(s)
	return s.h, nil
}

// StreamDestroy is [driver.Streams].StreamDestroy.
func (d *Driver) StreamDestroy(h driver.StreamHandle) error {
	const op = "destroy stream"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	if s.captured() {
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is captured", uintptr(h))
	}
	if s.turn.on {
		return driver.Errorf(driver.ErrInvalidArgument, s.b.Name, op, "a caller is at %q of stream %#x", s.turn.name,
			uintptr(h))
	}
	d.Streams.Drop(h, s)
	return s.end(op)
}

// end gives the queue back when its work is done. It's locked.
func (s *stream) end(op string) error {
	t, err := s.point(op)
	s.Gone = true
	s.dropPlans()
	s.b.mu.Lock()
	delete(s.b.streams, s)
	if err == nil && !t.Over() {
		s.b.going = append(s.b.going, t)
	}
	s.b.mu.Unlock()
	if err != nil || t.Over() {
		s.burden.end(s.b)
	}
	if err != nil && s.b.Broken() == nil {
		return err
	}
	if t.Over() {
		return s.b.result(op, "clReleaseCommandQueue", s.b.QueueFree(s.q))
	}
	// The release of a queue that has work waits for it in some libraries.
	s.b.d.deferred.Behind(s.b, []*ticket{t}, 0, func() {
		s.burden.end(s.b)
		s.b.QueueFree(s.q)
	})
	return nil
}

// point is a ticket for all that the stream has to do now. It's locked.
func (s *stream) point(op string) (*ticket, error) {
	if err := s.behind(op); err != nil {
		return nil, err
	}
	if !s.dirty || s.Gone {
		return s.tail, nil
	}
	t, err := s.newTicket(op, false)
	if err != nil {
		return nil, err
	}
	s.tail, s.dirty = t, false
	return t, nil
}

// broken is what the stream carries. It's locked.
func (s *stream) broken() error {
	err, settled := s.outcome.Failed()
	if err == nil && settled {
		s.outcome = nil
	}
	return s.carried(s.outcome)
}

// carried is the error of a result of the stream's, of its commands or of its device.
func (s *stream) carried(f *outcome.Result) error {
	if err := s.b.Broken(); err != nil {
		return err
	}
	if err, _ := f.Failed(); err != nil {
		return err
	}
	if err := s.broke.Load(); err != nil {
		return err
	}
	return nil
}

// doing says what the stream is at, for errors.
func (s *stream) doing() string {
	if f := s.at.Load(); f != nil {
		return fmt.Sprintf("stream %#x has been at %q, with %d functions behind it,", uintptr(s.h), f.name,
			max(s.queued.Load()-1, 0))
	}
	return fmt.Sprintf("stream %#x has been at work of the device", uintptr(s.h))
}

// Query is that of [base.Front].
func (s *stream) Query(op string) (bool, error) {
	if err := s.unlessCaptured(op); err != nil {
		return false, err
	}
	t, err := s.point(op)
	if err != nil || !t.Over() {
		return false, err
	}
	return true, s.broken()
}

// StreamSynchronize is [driver.Streams].StreamSynchronize.
func (d *Driver) StreamSynchronize(ctx context.Context, h driver.StreamHandle) error {
	_, err := d.finish(ctx, "synchronize stream", h)
	return err
}

// finish waits for a stream. The error may be what it carries: waited is true then.
func (d *Driver) finish(ctx context.Context, op string, h driver.StreamHandle) (waited bool, err error) {
	s, err := d.stream(op, h)
	if err != nil {
		return false, err
	}
	err = s.unlessCaptured(op)
	var t *ticket
	if err == nil {
		t, err = s.point(op)
	}
	f := s.outcome
	s.Unlock()
	if err != nil {
		return false, err
	}
	if err := t.await(ctx, op, s.doing); err != nil {
		return false, err
	}
	s.rested()
	d.deferred.Reap(s.b)
	return true, s.carried(f)
}

// StreamRecover is [driver.Streams].StreamRecover: of what functions of the host and commands have failed with. A
// device that is lost can't be recovered in this process.
func (d *Driver) StreamRecover(ctx context.Context, h driver.StreamHandle) error {
	const op = "recover stream"
	waited, err := d.finish(ctx, op, h)
	if !waited || err == nil {
		return err
	}
	s, gone := d.stream(op, h)
	if gone != nil {
		return gone
	}
	defer s.Unlock()
	if lost := s.b.Broken(); lost != nil {
		return driver.Errorf(driver.ErrUnsupported, s.b.Name, op, "the device is lost for this process: %w", lost)
	}
	s.outcome = nil
	s.broke.Store(nil)
	return err
}

// WaitFor is that of [base.Front].
func (s *stream) WaitFor(op string, e *event) error {
	if captured, err := s.meets(op, e); captured || err != nil {
		return err
	}
	return s.follow(op, e.ticket, e.outcome)
}

// follow makes the stream's later work come after a ticket and have its result. It's locked.
func (s *stream) follow(op string, t *ticket, f *outcome.Result) error {
	if t == nil {
		return nil
	}
	if t.s != s {
		if err := t.before(op, s); err != nil {
			return err
		}
	}
	s.outcome = outcome.Merge(s.outcome, f)
	return nil
}

// failure is the error of work of the stream.
func (s *stream) failure(work string, err error) *driver.WorkError {
	return &driver.WorkError{Device: s.b.Name, Stream: s.h, Work: work, At: time.Now(), Err: err}
}

// command is work for the library to enqueue.
type command struct {
	call     string // the library's function
	kind     driver.ActivityKind
	name     string
	bytes    int // of copies and fills
	elements int // of brief work; 0: it isn't known to be
}

// enqueue has f enqueue a command, unless the stream carries an error. f takes a place for the command's event, which is
// nil unless there's a trace. The stream is locked.
func (s *stream) enqueue(op string, c command, f func(e *abi.Event) abi.Result) error {
	tr, err := s.traced(op)
	if err != nil {
		return err
	}
	return s.enqueueIn(tr, op, c, f)
}

// enqueueIn is enqueue in a trace that traced has returned, or in none: the queue stays the one that it was then.
func (s *stream) enqueueIn(tr *traces.Trace, op string, c command, f func(e *abi.Event) abi.Result) (err error) {
	if s.broken() != nil {
		return s.b.Broken() // left out, unless it's the device
	}
	if err := s.behind(op); err != nil {
		return err
	}
	s.enqueues(c.elements)
	if tr == nil {
		err = s.b.result(op, c.call, f(nil))
	} else {
		err = s.timed(tr, op, &c, f)
	}
	if err != nil {
		return err
	}
	return s.b.result(op, "clFlush", s.b.Flush(s.q))
}
