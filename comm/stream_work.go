package comm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device"
)

// deviceWork is the additional state of a Work whose operation is on a device.
type deviceWork struct {
	dev   *device.Device
	event device.Event // behind the operation
	watch sync.Once    // for Done
	// broken returns the cause if the communicator is broken: for an operation that the backend has enqueued, this is
	// its error, too. It's nil if engines of the process carry the operation out, which have the error themselves.
	broken func() error
	done   atomic.Bool                 // the operation was done before the communicator broke
	expire func(elapsed time.Duration) // declares the operation overdue; nil as broken is
}

// endError is the error of an operation that has ended, whose event gives err.
func (on *deviceWork) endError(err error) error {
	if err == nil && on.broken != nil {
		return on.cause()
	}
	return err
}

// cause is what has broken the communicator, unless the operation was done before.
func (on *deviceWork) cause() error {
	if err := on.broken(); err != nil && !on.done.Load() {
		return err
	}
	return nil
}

// issueOn is issue for an operation on a device.
func (w *Work) issueOn(c *Comm, op string) error {
	if err := w.issue(); err != nil {
		return c.invalid(op, "%v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = c.dev().work()
	return nil
}

// work is the device part of a new Work.
func (s *streams) work() *deviceWork {
	on := &deviceWork{dev: s.dev}
	if s.library != nil {
		on.broken = s.library.cause
	}
	return on
}

// onDevice returns the device part of the Work; nil for an operation on the host.
func (w *Work) onDevice() *deviceWork {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.on
}

// complete is finish for an operation that may be completed already. If the stream skips an operation because of an
// error of other work, the first goroutine that notices completes it.
func (w *Work) complete(err error) { w.completeOn(w.onDevice(), err) }

// completeOn is complete for the operation that on is of; the Work may be another's by now.
func (w *Work) completeOn(on *deviceWork, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == on && (w.status == NotStarted || w.status == InProgress) {
		w.finishLocked(err)
	}
}

// startOn is start for the operation that on is of, if it isn't completed.
func (w *Work) startOn(on *deviceWork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == on && w.status == NotStarted {
		w.status = InProgress
	}
}

// poll completes an operation on a device that was left out, or that the backend has enqueued and is done.
func (w *Work) poll() {
	on := w.onDevice()
	if on == nil || w.state() >= Completed {
		return
	}
	recorded := on.broken != nil && on.event.Handle() != 0
	if done, err := on.event.Query(); done && (errors.Is(err, device.ErrFailed) || recorded) {
		w.completeOn(on, on.endError(err))
	}
}

// failed is the known error of the operation. An operation that the backend has enqueued fails only with its
// communicator, so the device isn't asked.
func (w *Work) failed(on *deviceWork) error {
	if on.broken == nil {
		return w.Err()
	}
	if cause := on.cause(); cause != nil {
		if err := w.Err(); err != nil || w.state() >= Completed {
			return err
		}
		return cause // which it's about to fail with
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Work) state() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// OnDevice reports whether the operation is one on a device, for which Wait and Synchronize differ.
func (w *Work) OnDevice() bool { return w.onDevice() != nil }

// wait makes the current stream wait for the operation.
func (on *deviceWork) wait(ctx context.Context) error {
	s, err := on.dev.CurrentStream(ctx)
	if err != nil {
		return err
	}
	if on.broken != nil { // the backend's library is the device's, whose calls go by the thread's current one
		unbind, err := on.dev.Bind()
		if err != nil {
			return err
		}
		defer unbind()
	}
	return s.Wait(&on.event)
}

// Synchronize blocks until the operation is done and returns its error, as Wait does for an operation on the host. If
// ctx ends first it returns the context's cause, and the operation goes on. It's an error for an operation that was
// captured.
func (w *Work) Synchronize(ctx context.Context) error {
	on := w.onDevice()
	if on == nil {
		return w.Wait(ctx)
	}
	err := on.event.Synchronize(ctx)
	switch {
	case err == nil || errors.Is(err, device.ErrFailed):
		w.completeOn(on, on.endError(err))
		return w.Err()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// Expire declares an operation overdue for which a caller has waited that long, even though its own timeout isn't
// over. The communicator breaks with a *TimeoutError, of which Expire's caller is told, so that [WithAbortBehind]
// isn't about it. It returns what the operation has ended with. It's for operations that a backend's library has on a
// stream; for others it does nothing and returns [ErrUnsupported].
func (w *Work) Expire(elapsed time.Duration) error {
	on := w.onDevice()
	if on == nil || on.expire == nil {
		return fmt.Errorf("%w: only operations that a backend's library has on a stream can be declared overdue",
			ErrUnsupported)
	}
	if done, err := on.event.Query(); !done && err == nil && on.broken() == nil {
		on.expire(elapsed)
	}
	if err := on.cause(); err != nil {
		w.completeOn(on, err)
	}
	return w.Err()
}
