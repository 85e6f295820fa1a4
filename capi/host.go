//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/observe/record"
)

// interval is how often a host with a check is asked, in nanoseconds.
var interval atomic.Int64

func init() {
	interval.Store(int64(fabric.PollInterval))
	record.EmbeddedInHost()
}

//export goSetInterval
func goSetInterval(ns C.int64_t) (status C.chorus_status) {
	defer contain(&status)
	if ns == 0 {
		ns = C.int64_t(fabric.PollInterval)
	}
	interval.Store(int64(ns))
	return C.CHORUS_OK
}

var started = time.Now()

// asking is the context of a synchronous operation whose host wants to be asked: a
// fabric.Poller that ends when the host says so.
type asking struct {
	done chan struct{}
	next atomic.Int64 // when the next question is due, in nanoseconds since started; 0: an interval from now
	over atomic.Bool
}

func newAsking() *asking { return &asking{done: make(chan struct{})} }

// begin starts a new wait; the first question comes after a whole interval.
func (a *asking) begin() { a.next.Store(0) }

// Poll implements fabric.Poller. Waits call it often; it's asked on whichever thread waits, and the
// shim passes the question on only where the host is at home.
func (a *asking) Poll() error {
	if a.over.Load() {
		return errInterrupted
	}
	now := int64(time.Since(started))
	next := a.next.Load()
	if next == 0 {
		a.next.Store(now + interval.Load())
		return nil
	}
	if now < next {
		return nil
	}
	switch C.shim_check() {
	case 1:
		if a.over.CompareAndSwap(false, true) {
			close(a.done)
		}
		return errInterrupted
	case 0:
		a.next.Store(now + interval.Load())
	}
	return nil
}

func (a *asking) Deadline() (time.Time, bool) { return time.Time{}, false }
func (a *asking) Done() <-chan struct{}       { return a.done }
func (a *asking) Value(key any) any {
	if key == fabric.AsPoller {
		return a
	}
	return nil
}
func (a *asking) Err() error {
	if a.over.Load() {
		return context.Canceled
	}
	return nil
}

// attend waits for done, at most until expired, and asks the host meanwhile.
func attend(done <-chan struct{}, expired <-chan time.Time, checked C.int32_t) (interrupted, late bool) {
	var due <-chan time.Time
	if checked != 0 {
		tick := time.NewTicker(time.Duration(interval.Load()))
		defer tick.Stop()
		due = tick.C
	}
	for {
		select {
		case <-done:
			return false, false
		case <-expired:
			return false, true
		case <-due:
			if C.shim_check() == 1 {
				return true, false
			}
		}
	}
}

// patience is how long a call that the host gave up waits for what it began to end:
// longer than it takes, so that it's normally over, callbacks included, when the call returns.
const patience = 5 * time.Second

// running calls f, on another goroutine if the host wants to be asked meanwhile. If the host gives up, f's context
// ends. If f succeeds all the same, abandoned is called, unless it's nil.
func running(checked C.int32_t, f func(ctx context.Context) error, abandoned func()) error {
	if checked == 0 {
		return f(context.Background())
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				poison(r)
				err = errPanicked
			}
		}()
		err = f(ctx)
	}()
	if interrupted, _ := attend(done, nil, checked); interrupted {
		cancel(errInterrupted)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-done
			if err == nil && abandoned != nil {
				abandoned()
			}
		}()
		attend(ended, time.After(patience), 0)
		return errInterrupted
	}
	return err
}
