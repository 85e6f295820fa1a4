package gpu

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
)

// stream is one of the library's.
type stream struct {
	base.Entry[driver.StreamHandle, *stream]
	b       *gpu
	h       abi.Stream
	adopted int  // times that a foreign stream was adopted; 0: it's the driver's
	joined  bool // it has waited for an event of another owner's capture, which may be under way

	base.Stream
	outcome *outcome.Result
	capture *capture
	word    word   // what functions set when they have run; none before the first
	count   uint32 // functions enqueued, and so what the word is in the end
	at      atomic.Pointer[function]
	queued  atomic.Int32 // functions that have not run
	product *product     // what it multiplies and solves with; nil before it has

	params []unsafe.Pointer // to the arguments of a launch, to be used again
}

// expect counts functions that are enqueued, or have run.
func (s *stream) expect(n int32) {
	s.queued.Add(n)
	s.b.functions.Add(n)
}

// Device is that of [base.Front].
func (s *stream) Device() *base.Device { return &s.b.Device }

// stream finds a stream, and returns it locked.
func (d *Driver) stream(op string, h driver.StreamHandle) (*stream, error) {
	return base.Enter(d.Streams, op, h)
}

func (d *Driver) addStream(s *stream) {
	s.b.mu.Lock()
	s.b.streams[s] = true
	s.b.mu.Unlock()
	if s.adopted > 0 {
		s.b.adopting.Lock()
		s.b.adopted[s.h] = true
		s.b.adopting.Unlock()
	}
	d.Streams.Put(driver.StreamHandle(s.h), s)
}

// forget takes a stream out. It's locked.
func (d *Driver) forget(s *stream) {
	s.Gone = true
	s.b.mu.Lock()
	delete(s.b.streams, s)
	s.b.mu.Unlock()
	s.b.adopting.Lock()
	delete(s.b.adopted, s.h)
	s.b.adopting.Unlock()
	d.Streams.Drop(driver.StreamHandle(s.h), s)
}

// StreamCreate is [driver.Streams].StreamCreate. No stream waits for the library's default one.
func (d *Driver) StreamCreate(dev int, priority int) (driver.StreamHandle, error) {
	const op = "create stream"
	b, err := d.gpu(op, dev)
	if err != nil {
		return 0, err
	}
	if err := b.Priority(op, priority); err != nil {
		return 0, err
	}
	h := new(abi.Stream)
	err = b.call(op, "StreamCreateWithPriority", func() abi.Result {
		return b.StreamCreate(h, abi.StreamNonBlocking, max(int32(-priority), b.urgent)) // urgent is less than 0
	})
	if err != nil {
		return 0, err
	}
	d.addStream(&stream{b: b, h: *h})
	return driver.StreamHandle(*h), nil
}

// StreamDestroy is [driver.Streams].StreamDestroy. The library may use the handle again for another stream.
func (d *Driver) StreamDestroy(h driver.StreamHandle) error {
	const op = "destroy stream"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	switch {
	case s.capture != nil:
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is captured", uintptr(h))
	case s.adopted > 0:
		return driver.Errorf(driver.ErrInvalidHandle, s.b.Name, op, "stream %#x is another library's", uintptr(h))
	}
	t, err := s.b.ticket(op, s.h)
	if err != nil && s.b.Broken() == nil {
		return err
	}
	d.forget(s)
	if t != nil && !t.Over() {
		s.b.mu.Lock()
		s.b.going = append(s.b.going, t)
		s.b.mu.Unlock()
	}
	d.dropWord(s.b, s.word)
	d.dropProduct(s)
	return s.b.call(op, "StreamDestroy", func() abi.Result { return s.b.StreamDestroy(s.h) })
}

// StreamAdopt makes a stream that other code has created, PyTorch for example, one of the driver's, until
// [Driver.StreamAbandon], which is needed as often. It may be captured by the other one; then functions can't be
// enqueued. Handles 0 to 2 stand for the library's default streams, which aren't taken.
func (d *Driver) StreamAdopt(dev int, h driver.StreamHandle) error {
	const op = "adopt stream"
	b, err := d.gpu(op, dev)
	if err != nil {
		return err
	}
	if h <= 2 {
		return driver.Errorf(driver.ErrInvalidHandle, b.Name, op,
			"handle %d is a default stream, which others would wait for: make another one current", uintptr(h))
	}
	s, err := d.Streams.Find(op, h)
	if err != nil {
		if err := b.owns(op, abi.Stream(h)); err != nil {
			return err
		}
		d.addStream(&stream{b: b, h: abi.Stream(h), adopted: 1})
		return nil
	}
	s.Lock()
	defer s.Unlock()
	if s.b != b {
		return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "stream %#x is of %s", uintptr(h), s.b.Name)
	}
	if s.adopted > 0 {
		s.adopted++
	}
	return nil
}

// owns demands that a stream is of the GPU.
func (b *gpu) owns(op string, h abi.Stream) error {
	if b.StreamContext != nil {
		c := new(abi.Context)
		if err := b.call(op, "StreamGetCtx", func() abi.Result { return b.StreamContext(h, c) }); err != nil {
			return err
		}
		if *c == b.context {
			return nil
		}
		return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "stream %#x is of another context", uintptr(h))
	}
	of := new(abi.Device)
	if err := b.call(op, "StreamGetDevice", func() abi.Result { return b.StreamDevice(h, of) }); err != nil {
		return err
	}
	if *of == b.id {
		return nil
	}
	return driver.Errorf(driver.ErrWrongDevice, b.Name, op, "stream %#x is of device %d", uintptr(h), *of)
}

// StreamAbandon undoes StreamAdopt. Enqueued work runs.
func (d *Driver) StreamAbandon(h driver.StreamHandle) error {
	const op = "abandon stream"
	s, err := d.stream(op, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	switch {
	case s.adopted == 0:
		return nil // it was the driver's all the time
	case s.capture != nil:
		return driver.Errorf(driver.ErrCapture, s.b.Name, op, "stream %#x is captured", uintptr(h))
	}
	if s.adopted--; s.adopted == 0 {
		d.forget(s)
		d.dropWord(s.b, s.word)
		d.dropProduct(s)
	}
	return nil
}

// broken is what the stream carries. It's locked.
func (s *stream) broken() error {
	if err := s.b.Broken(); err != nil {
		return err
	}
	err, settled := s.outcome.Failed()
	if err != nil {
		return err
	}
	if settled {
		s.outcome = nil
	}
	return nil
}

// at says what the stream is at, for errors.
func (s *stream) doing() string {
	if f := s.at.Load(); f != nil {
		return fmt.Sprintf("stream %#x has been at %q, with %d functions behind it,", uintptr(s.h), f.name,
			max(s.queued.Load()-1, 0))
	}
	return fmt.Sprintf("stream %#x has been at work of the GPU", uintptr(s.h))
}

// Query is that of [base.Front].
func (s *stream) Query(op string) (bool, error) {
	if err := s.unlessCaptured(op); err != nil {
		return false, err
	}
	switch r := s.b.query(func() abi.Result { return s.b.StreamQuery(s.h) }); r {
	case abi.NotReady:
		return false, nil
	case abi.Success:
		return true, s.broken()
	default:
		return false, s.b.result(op, "StreamQuery", r)
	}
}

// StreamSynchronize is [driver.Streams].StreamSynchronize.
func (d *Driver) StreamSynchronize(ctx context.Context, h driver.StreamHandle) error {
	_, err := d.finish(ctx, "synchronize stream", h)
	return err
}

// finish waits for a stream. The error may be what it carries, which is the result that is returned then.
func (d *Driver) finish(ctx context.Context, op string, h driver.StreamHandle) (*outcome.Result, error) {
	s, err := d.stream(op, h)
	if err != nil {
		return nil, err
	}
	if err := s.unlessCaptured(op); err != nil {
		s.Unlock()
		return nil, err
	}
	f := s.outcome
	t, err := s.b.ticket(op, s.h)
	s.Unlock()
	if err != nil {
		return nil, err
	}
	if err := s.b.Await(ctx, op, t.passed, s.doing); err != nil {
		return nil, err
	}
	d.deferred.Reap(s.b)
	if err := s.b.Broken(); err != nil {
		return nil, err
	}
	if err, _ := f.Failed(); err != nil {
		return f, err
	}
	return nil, nil
}

// passed is over, with the GPU's error.
func (t *ticket) passed() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return true, nil
	}
	ok, err := t.b.happened("wait", t.e)
	if ok {
		t.b.retire(t.e)
	}
	t.done = ok || err != nil
	return ok, err
}

// StreamRecover is [driver.Streams].StreamRecover: of what functions of the host have failed with. A GPU that has
// failed can't be recovered in this process.
func (d *Driver) StreamRecover(ctx context.Context, h driver.StreamHandle) error {
	const op = "recover stream"
	f, err := d.finish(ctx, op, h)
	if f == nil && err != nil {
		if s, e := d.stream(op, h); e == nil {
			defer s.Unlock()
			if lost := s.b.Broken(); lost != nil {
				return driver.Errorf(driver.ErrUnsupported, s.b.Name, op, "the GPU is lost for this process: %w", lost)
			}
		}
		return err
	}
	s, e := d.stream(op, h)
	if e != nil {
		return e
	}
	defer s.Unlock()
	if s.outcome == f || err != nil {
		s.outcome = nil
	}
	return err
}

// Synchronize is [driver.Driver].Synchronize, for the driver's streams and those that it has adopted; of others it
// doesn't know.
func (d *Driver) Synchronize(ctx context.Context, dev int) error {
	const op = "synchronize"
	b, err := d.gpu(op, dev)
	if err != nil {
		return err
	}
	b.mu.Lock()
	streams := make([]*stream, 0, len(b.streams))
	for s := range b.streams {
		streams = append(streams, s)
	}
	going := append([]*ticket(nil), b.going...)
	b.mu.Unlock()
	type wait struct {
		t *ticket
		s *stream
		f *outcome.Result
	}
	var waits []wait
	for _, s := range streams {
		s.Lock()
		err := s.unlessCaptured(op)
		if err == nil && !s.Gone {
			var t *ticket
			if t, err = b.ticket(op, s.h); err == nil {
				waits = append(waits, wait{t, s, s.outcome})
			}
		}
		s.Unlock()
		if err != nil {
			return err
		}
	}
	for _, t := range going {
		at := func() string { return "a stream that was destroyed has been at work" }
		if err := b.Await(ctx, op, t.passed, at); err != nil {
			return err
		}
	}
	for _, w := range waits {
		if err := b.Await(ctx, op, w.t.passed, w.s.doing); err != nil {
			return err
		}
	}
	d.deferred.Reap(b)
	for _, w := range waits {
		if err, _ := w.f.Failed(); err != nil {
			return err
		}
	}
	return b.Broken()
}

// WaitFor is that of [base.Front].
func (s *stream) WaitFor(op string, e *event) error {
	if !e.recorded && !e.shared {
		return nil
	}
	if err := s.meets(op, e); err != nil {
		return err
	}
	if err := s.result(op, "StreamWaitEvent", func() abi.Result { return s.b.StreamWait(s.h, e.h, 0) }); err != nil {
		return err
	}
	if s.capture == nil && !e.foreign {
		s.outcome = outcome.Merge(s.outcome, e.outcome)
	}
	return nil
}

// result calls the library for the stream.
func (s *stream) result(op, call string, f func() abi.Result) error {
	return s.answered(op, call, s.b.do(f))
}

// answered is the error of a call for the stream, whose capture is over if the library says so.
func (s *stream) answered(op, call string, r abi.Result) error {
	if r.Capture() && s.capture != nil {
		s.capture.invalid.Store(true)
	}
	return s.b.result(op, call, r)
}

// failure is the error of work of the stream.
func (s *stream) failure(work string, err error) *driver.WorkError {
	return &driver.WorkError{Device: s.b.Name, Stream: driver.StreamHandle(s.h), Work: work, At: time.Now(), Err: err}
}
