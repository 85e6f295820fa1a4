//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"sync"
	"time"
)

// doneQueue holds works that are done until they're taken.
type doneQueue struct {
	mu      sync.Mutex
	works   []C.chorus_work
	changed chan struct{} // closed and replaced when there's something to see
	waiting int           // callers of next
	wakes   int           // how often the waiters were woken
	owed    bool          // a wake that came without waiters
}

var finished = doneQueue{changed: make(chan struct{})}

func (q *doneQueue) put(h C.chorus_work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.works = append(q.works, h)
	q.tell()
}

// wake releases all waiters, or the next one if there are none.
func (q *doneQueue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == 0 {
		q.owed = true
		return
	}
	q.wakes++
	q.tell()
}

// enter and leave enclose a wait; enter tells how many wakes there were before it.
func (q *doneQueue) enter() (wakes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting++
	if q.owed {
		q.owed = false
		return q.wakes - 1
	}
	return q.wakes
}

func (q *doneQueue) leave() {
	q.mu.Lock()
	q.waiting--
	q.mu.Unlock()
}

func (q *doneQueue) tell() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// take returns the first work, or 0 and what tells of a change, and how many wakes there were.
func (q *doneQueue) take() (h C.chorus_work, changed <-chan struct{}, wakes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.works) > 0 {
		h = q.works[0]
		q.works = q.works[1:]
	}
	return h, q.changed, q.wakes
}

//export goNextDone
func goNextDone(ns C.int64_t, out *C.chorus_work, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	if out == nil {
		return fail(refused("chorus_next_done got NULL"))
	}
	*out = 0
	var expired <-chan time.Time
	if ns >= 0 {
		t := time.NewTimer(time.Duration(ns))
		defer t.Stop()
		expired = t.C
	}
	before := finished.enter()
	defer finished.leave()
	h, changed, wakes := finished.take()
	for ; h == 0 && wakes == before; h, changed, wakes = finished.take() {
		switch interrupted, late := attend(changed, expired, checked); {
		case interrupted:
			return fail(errInterrupted)
		case late:
			return C.CHORUS_PENDING
		}
	}
	if h == 0 {
		return C.CHORUS_PENDING
	}
	*out = h
	return C.CHORUS_OK
}

//export goWakeDone
func goWakeDone() (status C.chorus_status) {
	defer contain(&status)
	finished.wake()
	return C.CHORUS_OK
}
