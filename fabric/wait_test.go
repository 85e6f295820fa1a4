package fabric

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAbort(t *testing.T) {
	a := NewAbort()
	if a.Raised() || a.Cause() != nil {
		t.Fatal("raised from the start")
	}
	var wg sync.WaitGroup
	var first atomic.Int32
	causes := []error{errors.New("one"), errors.New("two"), errors.New("three")}
	for _, c := range causes {
		wg.Go(func() {
			if a.Raise(c) {
				first.Add(1)
			}
		})
	}
	<-a.Done()
	wg.Wait()
	cause := a.Cause()
	if first.Load() != 1 || !a.Raised() || cause == nil {
		t.Errorf("%d were first; cause %v", first.Load(), cause)
	}
	a.Raise(errors.New("later"))
	if a.Cause() != cause {
		t.Error("the cause changed")
	}
}

// TestWaitEnds ends waits in all ways, blocked and spinning.
func TestWaitEnds(t *testing.T) {
	broken, changed := errors.New("broken"), errors.New("changed my mind")
	for name, policy := range map[string]Policy{"spin": SpinPolicy, "block": BlockPolicy} {
		w := NewWaiter(NewAbort())
		w.Policy = policy
		never := func() bool { return false }

		w.Begin(nil, time.Millisecond)
		if err := w.Park(never); err != ErrTimeout {
			t.Errorf("%s, timeout: %v", name, err)
		}
		if w.Elapsed() < time.Millisecond {
			t.Errorf("%s: timed out after %v", name, w.Elapsed())
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		w.Begin(ctx, 0)
		go cancel(changed)
		if err := w.Park(never); err != changed {
			t.Errorf("%s, cancellation: %v", name, err)
		}
		w.Begin(nil, time.Minute)
		var m Msg
		m.Reset(w)
		go m.Complete(3, 1, nil)
		if err := w.Park(m.Done); err != nil || m.N != 3 || m.From != 1 {
			t.Errorf("%s, completion: %v, %+v", name, err, &m)
		}
		w.Begin(nil, 0)
		go w.Abort.Raise(broken)
		if err := w.Park(never); err != broken {
			t.Errorf("%s, abort: %v", name, err)
		}
		if err := w.Park(func() bool { return true }); err != nil {
			t.Errorf("%s: what is done is refused: %v", name, err)
		}
		w.Abort = NewAbort()
		w.Begin(nil, time.Millisecond)
		if err := w.Await(make(chan struct{})); err != ErrTimeout {
			t.Errorf("%s, a channel: %v", name, err)
		}
		done := make(chan struct{})
		w.Begin(nil, time.Minute)
		go close(done)
		if err := w.Await(done); err != nil {
			t.Errorf("%s, a channel that is closed: %v", name, err)
		}
	}
}

// A wait that sleeps before it has looked once goes by its own deadline, not by that of the wait before.
func TestDeadlineOfTheWaitBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second
		w, start := NewWaiter(NewAbort()), time.Now()
		w.Begin(nil, limit)
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		w.Begin(nil, limit)
		var waiters GoroutineWaiters
		for {
			waiters.sleep(w, func() bool { return true })
			if errors.Is(w.Check(), ErrTimeout) {
				break
			}
		}
		if took := time.Since(start); took > limit+time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// A wait that lasts says so, blocked or not and with a deadline or none, each time after twice as long, and afresh with
// each operation.
func TestSlow(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := NewWaiter(NewAbort())
			for range 2 {
				var told []time.Duration
				start := time.Now()
				w.Slow = func() { told = append(told, time.Since(start)) }
				w.Begin(nil, limit)
				if err := w.Park(func() bool { return len(told) == 4 }); err != nil {
					t.Error(err)
				}
				if want := []time.Duration{SlowAfter, 2 * SlowAfter, 4 * SlowAfter, 8 * SlowAfter}; !slices.Equal(told, want) {
					t.Errorf("limit %v: told after %v", limit, told)
				}
			}
		})
	}
}

// A wait that another goroutine prods calls Slow at once, and once.
func TestProd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWaiter(NewAbort())
		start, told := time.Now(), 0
		w.Slow = func() { told++; w.Wake() }
		w.Begin(nil, time.Minute)
		go func() {
			synctest.Wait() // it's blocked
			w.Prod()
		}()
		if err := w.Park(func() bool { return told > 0 }); err != nil || time.Since(start) != 0 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if w.Check(); told != 1 {
			t.Errorf("Slow was called %d times", told)
		}
	})
}

// TestWakeIsNeverMissed completes a message while its waiter goes to sleep, many times.
func TestWakeIsNeverMissed(t *testing.T) {
	w := NewWaiter(NewAbort())
	w.Policy = BlockPolicy
	work := make(chan *Msg)
	go func() {
		for m := range work {
			m.Complete(0, 0, nil)
		}
	}()
	defer close(work)
	var m Msg
	for range 20_000 {
		m.Reset(w)
		work <- &m
		w.Begin(nil, time.Minute)
		if err := w.Block(m.Done); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWaitDoesNotAllocate(t *testing.T) {
	w := NewWaiter(NewAbort())
	var m Msg
	if n := testing.AllocsPerRun(1000, func() {
		m.Reset(w)
		m.Complete(0, 0, nil)
		w.Begin(nil, time.Second)
		w.Park(m.Done)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// asked is a context that ends itself when it has been asked often enough.
type asked struct {
	context.Context
	cancel context.CancelCauseFunc
	left   int
}

var errAskedOut = errors.New("asked often enough")

func (a *asked) Poll() error {
	if a.left--; a.left > 0 {
		return nil
	}
	a.cancel(errAskedOut)
	return errAskedOut
}

func (a *asked) Value(key any) any {
	if key == AsPoller {
		return a
	}
	return a.Context.Value(key)
}

func TestPollerIsAsked(t *testing.T) {
	for name, policy := range map[string]Policy{"spin": SpinPolicy, "block": BlockPolicy} {
		w := NewWaiter(NewAbort())
		w.Policy = policy
		for _, timeout := range []time.Duration{0, time.Hour} {
			ctx, cancel := context.WithCancelCause(context.Background())
			w.Begin(&asked{ctx, cancel, 3}, timeout)
			if err := w.Park(func() bool { return false }); err != errAskedOut {
				t.Errorf("%s, timeout %v: %v", name, timeout, err)
			}
			ctx, cancel = context.WithCancelCause(context.Background())
			derived, stop := context.WithTimeout(&asked{ctx, cancel, 3}, time.Hour)
			w.Begin(context.WithValue(derived, t, t), timeout)
			if err := w.Park(func() bool { return false }); err != errAskedOut && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, timeout %v, derived: %v", name, timeout, err)
			}
			stop()
		}
		w.Begin(context.Background(), time.Millisecond) // the poller of the operation before is forgotten
		if err := w.Park(func() bool { return false }); err != ErrTimeout {
			t.Errorf("%s: %v", name, err)
		}
	}
}
