package comm

import (
	"context"
	"errors"
	"sync"
)

// Work is the handle of an asynchronous operation. The zero Work is ready to be
// passed to Async, and may be again once the operation is done. All methods may
// be called from any goroutine.
//
// An operation that was captured counts as completed when it has become a node of the graph.
type Work struct {
	mu     sync.Mutex
	done   chan struct{}
	status Status
	err    error       // while it's under way, of a batch's operations that have ended
	on     *deviceWork // nil for an operation on the host
}

// Status is where an operation stands.
type Status uint8

// The states of an operation.
const (
	NotStarted Status = iota
	InProgress
	Completed
	TimedOut
	Failed
)

var statusNames = [...]string{"not_started", "in_progress", "completed", "timed_out", "failed"}

func (s Status) String() string { return statusNames[s] }

// issue binds the work to a new operation.
func (w *Work) issue() error {
	w.poll()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil && (w.status == NotStarted || w.status == InProgress) {
		return errors.New("the Work passed to Async belongs to an operation that is still under way")
	}
	w.done, w.status, w.err, w.on = make(chan struct{}), NotStarted, nil, nil
	return nil
}

func (w *Work) start() {
	w.mu.Lock()
	w.status = InProgress
	w.mu.Unlock()
}

// note keeps the error of an operation that may be one of a batch, whose first error is the work's.
func (w *Work) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// finish completes the work with the error that was noted.
func (w *Work) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finishLocked(w.err)
}

func (w *Work) finishLocked(err error) {
	w.err = err
	switch {
	case err == nil:
		w.status = Completed
	case errors.Is(err, ErrTimeout):
		w.status = TimedOut
	default:
		w.status = Failed
	}
	close(w.done)
}

// Done is closed when the operation is done. It's nil before the Work is issued.
func (w *Work) Done() <-chan struct{} {
	if on := w.onDevice(); on != nil && !w.Completed() {
		on.watch.Do(func() { go w.Synchronize(context.Background()) }) // it may be left out
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// Status returns where the operation stands.
func (w *Work) Status() Status {
	w.poll()
	return w.state()
}

// Completed reports whether the operation is done, well or not.
func (w *Work) Completed() bool { return w.Status() >= Completed }

// Err returns the operation's error; nil while it's under way.
func (w *Work) Err() error {
	w.poll()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status < Completed {
		return nil
	}
	return w.err
}

// Wait blocks until the operation is done and returns its error. If ctx ends
// first it returns the context's cause, and the operation goes on.
//
// For an operation on a device it makes the current stream of the device wait, and returns at once; what it returns is
// the error of an operation that has failed before. One that fails later is the stream's error. [Work.Synchronize]
// blocks. So does Wait if engines of the process can't touch the device's memory.
func (w *Work) Wait(ctx context.Context) error {
	if on := w.onDevice(); on != nil {
		if err := w.failed(on); err != nil {
			return err
		}
		return on.wait(ctx)
	}
	done := w.Done()
	if done == nil {
		return errors.New("chorus: Wait on a Work that was never issued")
	}
	select {
	case <-done:
		return w.Err()
	default:
	}
	select {
	case <-done:
		return w.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
