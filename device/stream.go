package device

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/cache"
	"github.com/chorus-comms/chorus/device/driver"
)

// Stream is a queue of work of a device, which runs in the order in which it was enqueued.
type Stream struct {
	dev   *Device
	h     StreamHandle
	id    int64
	level int
	owned bool                          // of NewStream
	turn  atomic.Pointer[chan struct{}] // closed by Release, where the driver is no CallerRuns
}

// Device is the device that the stream's work runs on.
func (s *Stream) Device() *Device { return s.dev }

// Handle is the driver's.
func (s *Stream) Handle() StreamHandle { return s.h }

// ID identifies the stream among those of its device.
func (s *Stream) ID() int64 { return s.id }

// Priority is the level, from 0.
func (s *Stream) Priority() Priority { return Priority(s.level) }

func (s *Stream) String() string {
	return fmt.Sprintf("stream device_type=%s, device_index=%d, stream_id=%d", s.dev.rt.Name(), s.dev.index, s.id)
}

// Equal reports whether both are the same stream.
func (s *Stream) Equal(o *Stream) bool { return s == o || o != nil && s.dev == o.dev && s.h == o.h }

func (s *Stream) drv() Driver { return s.dev.rt.drv }

// Close destroys a stream of [Device.NewStream]; its work still runs. Other streams are not the caller's to close.
func (s *Stream) Close() error {
	if !s.owned {
		return Errorf(ErrInvalidHandle, s.dev.Name(), "close", "%v belongs to its device, or to another library", s)
	}
	for _, d := range s.dev.rt.devices {
		// Allocators may hold memory for the stream, which goes back to the driver; work that uses it keeps it. And memory
		// that the stream uses must not need it any more to find out when it doesn't.
		if c := d.cache.Load(); c != nil {
			if err := c.ForgetStream(cache.Stream(s.h)); err != nil {
				return d.cacheError("close stream", err)
			}
		}
	}
	return s.drv().StreamDestroy(s.h)
}

// Query reports whether all work is done. The error is one that the stream carries.
func (s *Stream) Query() (bool, error) { return s.drv().StreamQuery(s.h) }

// Synchronize waits until all work enqueued so far is done, and returns what it failed with: a [*WorkError], each time
// until Recover. If ctx ends first the work goes on.
func (s *Stream) Synchronize(ctx context.Context) error { return s.drv().StreamSynchronize(ctx, s.h) }

// Recover waits as Synchronize does and takes the error from the stream, so that it runs work again. It returns that
// error.
func (s *Stream) Recover(ctx context.Context) error { return s.drv().StreamRecover(ctx, s.h) }

// Copy enqueues a copy of n bytes. Each side is device memory, pinned memory, or other host memory that the caller
// keeps in place, alive and unchanged until the copy is done; for Go memory use [Stream.CopyIn] and [Stream.CopyOut].
func (s *Stream) Copy(dst, src Ptr, n int) error {
	err := s.drv().Copy(s.h, dst, src, n, driver.CopyDefault)
	if err == nil {
		s.uses(dst, src)
	}
	return err
}

// CopyIn copies a slice to the device, in the stream's order, and returns when that is done. No bytes are no copy.
func (s *Stream) CopyIn(ctx context.Context, dst Ptr, src []byte) error {
	return s.copySlice(ctx, dst, src, driver.HostToDevice)
}

// CopyOut copies from the device to a slice, in the stream's order, and returns when that is done.
func (s *Stream) CopyOut(ctx context.Context, dst []byte, src Ptr) error {
	return s.copySlice(ctx, src, dst, driver.DeviceToHost)
}

func (s *Stream) copySlice(ctx context.Context, p Ptr, b []byte, kind driver.CopyKind) error {
	if len(b) == 0 {
		return nil
	}
	if s.Capturing() {
		return Errorf(ErrCapture, s.dev.Name(), "copy",
			"a copy of Go memory can't be captured, as a replay could come after the memory's life: use pinned memory")
	}
	// The driver gets the slice as a number, so a reference must keep it alive while the copy is under way, also when
	// ctx has ended. The goroutine below keeps one, which also forces the slice off the stack, which could move.
	host := Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	if s.dev.props.CopiesWait { // without a deadline
		if at, err := s.drv().Attributes(host); err != nil || at.Type == driver.Unmanaged {
			if err := s.Synchronize(ctx); err != nil {
				return err
			}
		}
	}
	dst, src := p, host
	if kind == driver.DeviceToHost {
		dst, src = host, p
	}
	if err := s.drv().Copy(s.h, dst, src, len(b), kind); err != nil {
		return err
	}
	s.uses(host) // the slice may be one of pinned memory
	err := s.Synchronize(ctx)
	if errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled) {
		go func() {
			_ = s.Synchronize(context.WithoutCancel(ctx))
			runtime.KeepAlive(b)
		}()
	}
	return err
}

// Fill enqueues setting n bytes of device memory to value.
func (s *Stream) Fill(dst Ptr, value byte, n int) error { return s.drv().Fill(s.h, dst, value, n) }

// HostFunc enqueues a function of the host; see [driver.Streams].HostFunc. While the stream is captured it becomes a
// node of the graph, and runs at each replay.
func (s *Stream) HostFunc(name string, f func() error) error { return s.drv().HostFunc(s.h, name, f) }

// HostKernels reports whether the driver can Launch Go functions.
func (s *Stream) HostKernels() bool {
	_, ok := s.drv().(HostKernels)
	return ok
}

// Launch enqueues a kernel; see [HostKernels].Launch.
func (s *Stream) Launch(name string, operands []Span, f func(views []unsafe.Pointer) error) error {
	k, err := optional[HostKernels](s.dev.rt, "launch "+name)
	if err != nil {
		return err
	}
	if err := k.Launch(s.h, name, operands, f); err != nil {
		return err
	}
	for _, o := range operands {
		s.uses(o.Ptr)
	}
	return nil
}

// TryAcquire lets the caller do the stream's next work itself until Release; see
// [driver.CallerRuns].StreamTryAcquire. If the driver isn't a CallerRuns, it runs a host function meanwhile, and
// TryAcquire waits until that has begun.
func (s *Stream) TryAcquire(name string) (entered bool, err error) {
	if t, ok := s.drv().(driver.CallerRuns); ok {
		return t.StreamTryAcquire(s.h, name)
	}
	if s.Capturing() {
		return false, nil
	}
	if idle, err := s.drv().StreamQuery(s.h); err != nil || !idle {
		return false, err
	}
	begun, over := make(chan struct{}), make(chan struct{})
	run := func() error { close(begun); <-over; return nil }
	if err := s.drv().HostFunc(s.h, name, run); err != nil {
		return false, err
	}
	for wait := time.NewTicker(time.Millisecond); ; {
		select {
		case <-begun:
			wait.Stop()
			s.turn.Store(&over)
			return true, nil
		case <-wait.C: // work that another thread has enqueued before may have failed, so that this is left out
			if _, err := s.drv().StreamQuery(s.h); err != nil {
				wait.Stop()
				return false, err
			}
		}
	}
}

// Release ends what TryAcquire began.
func (s *Stream) Release() error {
	if t, ok := s.drv().(driver.CallerRuns); ok {
		return t.StreamRelease(s.h)
	}
	over := s.turn.Swap(nil)
	if over == nil {
		return Errorf(ErrInvalidArgument, s.dev.Name(), "leave", "stream %#x was not entered", uintptr(s.h))
	}
	close(*over)
	return nil
}

// CallerRuns reports whether the driver is a [driver.CallerRuns]: elsewhere TryAcquire has to wake another thread, and
// Continue fails.
func (s *Stream) CallerRuns() bool {
	_, ok := s.drv().(driver.CallerRuns)
	return ok
}

// Continue ends what TryAcquire began, and has an engine go on with the rest of it; see
// [driver.CallerRuns].StreamContinue. It fails if the driver isn't a CallerRuns.
func (s *Stream) Continue(rest func() error) error {
	t, err := optional[driver.CallerRuns](s.dev.rt, "hand over a turn")
	if err != nil {
		return err
	}
	return t.StreamContinue(s.h, rest)
}

// Record lets e stand for all work enqueued so far.
func (s *Stream) Record(e *Event) error { return e.record(s) }

// Wait makes work enqueued from now on wait for what e stands for now. An event that was never recorded stands for
// nothing.
func (s *Stream) Wait(e *Event) error {
	d, h := e.handle()
	if h == 0 {
		return nil
	}
	if d.rt != s.dev.rt {
		return Errorf(ErrInvalidHandle, s.dev.Name(), "wait for event", "the event is of %s, another type of device",
			d.Name())
	}
	return s.drv().StreamWaitEvent(s.h, h)
}

// WaitStream makes work enqueued from now on wait for all work that o has now.
func (s *Stream) WaitStream(o *Stream) error {
	if s.Equal(o) {
		return nil
	}
	var e Event
	if err := o.Record(&e); err != nil {
		return err
	}
	return errors.Join(s.Wait(&e), e.Close())
}

// setPanicOnFault is debug.SetPanicOnFault, of this goroutine.
func setPanicOnFault(on bool) bool { return debug.SetPanicOnFault(on) }
