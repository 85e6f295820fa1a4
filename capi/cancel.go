//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// cancelContext is the context of an asynchronous operation, which its host may cancel. A channel is made only when
// Done is called.
type cancelContext struct {
	mu   sync.Mutex
	done chan struct{}
	over bool
}

// cancel ends the context; again, it does nothing.
func (s *cancelContext) cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	if s.done == nil {
		s.done = make(chan struct{})
	}
	close(s.done)
}

// Done implements context.Context.
func (s *cancelContext) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
	}
	return s.done
}

// Err implements context.Context.
func (s *cancelContext) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context.
func (s *cancelContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (s *cancelContext) Value(any) any { return nil }

// cancel gives up what isn't done of a work. Messages are withdrawn; a collective can't be, since others may have taken
// part in it already: the communicator is aborted.
func (w *work) cancel() error {
	for _, p := range w.parts {
		if on, ok := p.(interface{ OnDevice() bool }); ok && on.OnDevice() {
			return refused("chorus_work_cancel: the work is a device's: it ends by its timeout, or by chorus_comm_abort")
		}
	}
	if w.completed() {
		return nil
	}
	w.canceled.cancel()
	for _, k := range w.ops {
		if k.op.Kind.PointToPoint() {
			continue
		}
		select {
		case <-k.work.Done():
		default:
			w.m.Abort(fmt.Errorf("it gave up an operation under way, %v", k.op.Kind))
			return nil
		}
	}
	// A message that isn't withdrawn yet could still take what is sent for the next one.
	late := time.NewTimer(withdrawTime)
	defer late.Stop()
	for _, p := range w.parts {
		select {
		case <-p.Done():
		case <-late.C:
			return nil
		}
	}
	return nil
}

// withdrawTime bounds how long a call waits for messages that it gives up.
const withdrawTime = time.Second

//export goWorkCancel
func goWorkCancel(h C.chorus_work) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWork(h)
	if err == nil {
		err = w.cancel()
	}
	return fail(err)
}
