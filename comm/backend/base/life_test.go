package base

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

var _ interface { // what a backend has by embedding a Life
	Abort(error)
	Broken() <-chan struct{}
	Cause() error
} = (*Life)(nil)

func begun(tell func(uint64, error)) *Life {
	l := new(Life)
	l.Begin("c", 1, tell)
	return l
}

// The first cause counts and is told once; every operation gets it as its own error.
func TestFirstCause(t *testing.T) {
	told := 0
	l := begun(func(from uint64, cause error) { told++ })
	if l.Raised() || l.Cause() != nil {
		t.Fatal("broken at its beginning")
	}
	l.Abort(errors.New("enough"))
	l.Fail(&backend.PeerLostError{Where: l.Where(), Peer: 0})
	var aborted *backend.AbortedError
	err := l.Err(l.Of(&backend.Op{Kind: backend.Barrier, Seq: 5}))
	if !errors.As(err, &aborted) || aborted.By != 1 || aborted.Op != "barrier" || aborted.Seq != 5 || told != 1 ||
		!l.FailureReturned() {
		t.Errorf("got %v, told %d times", err, told)
	}
	select {
	case <-l.Broken():
	default:
		t.Error("Broken is open")
	}
	if l.End() {
		t.Error("it ended well")
	}
}

// An operation that fails returns when the others have been told, and so does the end.
func TestErrWaitsForTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begun(func(uint64, error) { time.Sleep(100 * time.Millisecond) })
		start := time.Now()
		go l.Abort(errors.New("enough"))
		<-l.Broken()
		if l.Err(l.Where()); time.Since(start) < 100*time.Millisecond {
			t.Error("it didn't wait")
		}
		l.Reporting.Begin() // a report that never ends
		if l.Err(l.Where()); time.Since(start) > 2*time.Second {
			t.Error("it has waited too long")
		}
		l.Reporting.End()
	})
}

// A rank that is behind ends its earlier operations first, but is not waited for forever.
func TestBreakFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		l := begun(nil)
		l.BreakFrom(3, why)
		if time.Sleep(20 * time.Millisecond); l.Raised() || !l.Breaking() {
			t.Fatal("broken before its earlier operations have ended")
		}
		l.Ended(2)
		if time.Sleep(20 * time.Millisecond); l.Cause() != why || l.Breaking() {
			t.Error("not broken when they have")
		}
		slow := begun(nil)
		slow.BreakFrom(3, why)
		if time.Sleep(time.Second); slow.Cause() != why {
			t.Error("not broken after a while")
		}
		now := begun(nil)
		if now.BreakFrom(1, why); now.Cause() != why {
			t.Error("not broken at once by what the next operation fails for")
		}
	})
}

// Finalize is an end without a failure; what comes after it says so.
func TestEnd(t *testing.T) {
	l := begun(nil)
	if !l.End() || !errors.Is(l.Err(l.In("split")), backend.ErrFinalized) {
		t.Error("got", l.Cause())
	}
}

// Each reason for which a wait ends becomes the error of its kind.
func TestGaveUp(t *testing.T) {
	l := begun(nil)
	w := l.Waiter()
	w.Begin(context.Background(), time.Second)
	var timeout *backend.TimeoutError
	if err := l.WaitError(l.Where(), w, 0, fabric.ErrTimeout); !errors.As(err, &timeout) || len(timeout.Missing) != 1 {
		t.Errorf("got %v", err)
	}
	if err := l.WaitError(l.Where(), w, backend.AnySource, fabric.ErrTimeout); !errors.As(err, &timeout) ||
		timeout.Missing != nil {
		t.Errorf("got %v", err)
	}
	if err := l.WaitError(l.Where(), w, 0, fabric.ErrClosed); !errors.Is(err, backend.ErrFinalized) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.Begin(ctx, time.Second)
	if err := l.WaitError(l.Where(), w, 0, ctx.Err()); !errors.Is(err, backend.ErrCanceled) {
		t.Errorf("got %v", err)
	}
	l.report = func(uint64, error) {}
	l.Abort(errors.New("enough"))
	if err := l.WaitError(l.Where(), w, 0, ctx.Err()); !errors.Is(err, backend.ErrAborted) {
		t.Errorf("got %v", err)
	}
}
