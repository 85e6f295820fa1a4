package mydriver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// stream is a queue of work that a goroutine does while there is some.
type stream struct {
	d      *Driver
	dev    int
	handle driver.StreamHandle

	mu           sync.Mutex
	queue        []work
	running      bool
	issued, done uint64
	err          error         // of work, until StreamRecover
	changed      chan struct{} // closed when done grows
	destroyed    bool
}

// work is what a stream does. Records are work that always runs.
type work struct {
	name   string
	run    func() error
	always bool
}

func (s *stream) device() string { return name(s.dev) }

// stream finds a stream.
func (d *Driver) stream(op string, h driver.StreamHandle) (*stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.streams[h]; s != nil {
		return s, nil
	}
	return nil, driver.Errorf(driver.ErrInvalidHandle, Name, op, "there is no stream %#x", uintptr(h))
}

// StreamCreate implements driver.Streams.
func (d *Driver) StreamCreate(dev, priority int) (driver.StreamHandle, error) {
	if err := d.check("create stream", dev); err != nil {
		return 0, err
	}
	if priority != 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, name(dev), "create stream", "priority %d; there is only 0",
			priority)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &stream{d: d, dev: dev, handle: driver.StreamHandle(d.next()), changed: make(chan struct{})}
	d.streams[s.handle] = s
	d.devices[dev].streams[s] = struct{}{}
	return s.handle, nil
}

// StreamDestroy implements driver.Streams.
func (d *Driver) StreamDestroy(h driver.StreamHandle) error {
	s, err := d.stream("destroy stream", h)
	if err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.streams, h)
	d.mu.Unlock()
	s.mu.Lock()
	s.destroyed = true
	idle := !s.running
	s.mu.Unlock()
	if idle {
		s.forget()
	}
	return nil
}

// forget takes a stream out that is destroyed and has no more work.
func (s *stream) forget() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	delete(s.d.devices[s.dev].streams, s)
}

func (s *stream) enqueue(w work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	s.queue = append(s.queue, w)
	if !s.running {
		s.running = true
		go s.run()
	}
}

// run does the work that there is.
func (s *stream) run() {
	s.mu.Lock()
	for len(s.queue) > 0 {
		w := s.queue[0]
		s.queue = s.queue[1:]
		skip := s.err != nil && !w.always
		s.mu.Unlock()
		var err error
		if !skip {
			err = s.d.call(w.run)
		}
		s.mu.Lock()
		if err != nil && s.err == nil {
			if passed := (*driver.WorkError)(nil); errors.As(err, &passed) {
				s.err = passed // of work of another stream, which an event has brought
			} else {
				s.err = &driver.WorkError{Device: s.device(), Stream: s.handle, Work: w.name, At: time.Now(), Err: err}
			}
		}
		s.done++
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.running = false
	over := s.destroyed
	s.mu.Unlock()
	if over {
		s.forget()
	}
}

// call runs work. A panic is its error, and so is an access to a device's memory by its own address.
func (d *Driver) call(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		err = fmt.Errorf("it panicked: %v", r)
		if fault, ok := r.(interface{ Addr() uintptr }); ok {
			p := driver.Ptr(fault.Addr())
			if at, _ := d.Attributes(p); at.Type == driver.DeviceMemory {
				err = driver.Errorf(driver.ErrHostAccess, name(at.Device), "", "host code touched device memory at %v", p)
			}
		}
	}()
	return f()
}

// now returns the number of the last work enqueued.
func (s *stream) now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued
}

// wait waits until work has been done, and returns the error that the stream carries.
func (s *stream) wait(ctx context.Context, op string, number uint64) error {
	for {
		s.mu.Lock()
		done, err, changed := s.done >= number, s.err, s.changed
		behind := s.issued - s.done
		s.mu.Unlock()
		if done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ended(ctx, s.device(), op, fmt.Sprintf("stream %#x has %d pieces of work left", uintptr(s.handle), behind))
		}
	}
}

// ended is the error of a wait whose context has ended.
func ended(ctx context.Context, where, op, at string) error {
	kind := driver.ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = driver.ErrTimeout
	}
	return driver.Errorf(kind, where, op, "%s: %w", at, context.Cause(ctx))
}

// StreamQuery implements driver.Streams.
func (d *Driver) StreamQuery(h driver.StreamHandle) (bool, error) {
	s, err := d.stream("query stream", h)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done == s.issued, s.err
}

// StreamSynchronize implements driver.Streams.
func (d *Driver) StreamSynchronize(ctx context.Context, h driver.StreamHandle) error {
	s, err := d.stream("synchronize stream", h)
	if err != nil {
		return err
	}
	return s.wait(ctx, "synchronize stream", s.now())
}

// StreamRecover implements driver.Streams.
func (d *Driver) StreamRecover(ctx context.Context, h driver.StreamHandle) error {
	s, err := d.stream("recover stream", h)
	if err != nil {
		return err
	}
	err = s.wait(ctx, "recover stream", s.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && err == s.err {
		s.err = nil
	}
	return err
}

// HostFunc implements driver.Streams.
func (d *Driver) HostFunc(h driver.StreamHandle, name string, f func() error) error {
	s, err := d.stream("host function", h)
	if err != nil {
		return err
	}
	if f == nil {
		return driver.Errorf(driver.ErrInvalidArgument, s.device(), "host function", "no function")
	}
	s.enqueue(work{name: name, run: f})
	return nil
}

// StreamWaitEvent implements driver.Streams.
func (d *Driver) StreamWaitEvent(h driver.StreamHandle, e driver.EventHandle) error {
	s, err := d.stream("wait for event", h)
	if err != nil {
		return err
	}
	_, r, err := d.event("wait for event", e)
	if err != nil || r == nil {
		return err
	}
	s.enqueue(work{name: "wait for event", run: func() error {
		<-r.done
		return r.err
	}})
	return nil
}
