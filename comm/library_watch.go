package comm

import (
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
)

// enqueued are operations that the backend has put on a stream by itself, until their end is noticed. Until then they
// are within the gate.
type enqueued struct {
	round
	s     *device.Stream
	on    *deviceWork  // with the event behind them
	began device.Event // in front of them
	since time.Time    // when that was noticed
	what  *backend.Op  // what the backend is told if they are overdue
}

// watched are all of a communicator that are under way. One goroutine polls them while there are any.
type watched struct {
	sync.Mutex
	list []*enqueued
}

// Polls come after pauses that grow while nothing ends: a wait for an operation waits for its event, and only the
// flight record, hooks and timeouts depend on the polls.
const (
	pollPause   = time.Millisecond
	longestPoll = 10 * time.Millisecond
)

// newEnqueued are the operations of a task on their stream.
func (x *libraryExecutor) newEnqueued(t *task, calls []*call, on *device.Stream, what *backend.Op) *enqueued {
	e := &enqueued{round: round{c: x.c, op: t.op, calls: calls, work: t.work}, s: on, on: t.on, what: what}
	if e.on == nil {
		e.on = x.work()
	}
	e.on.expire = func(elapsed time.Duration) {
		x.errorReturned.Store(true)
		x.overdue(e, elapsed)
	}
	return e
}

// overdue breaks the communicator because of operations that aren't done in time.
func (x *libraryExecutor) overdue(e *enqueued, elapsed time.Duration) {
	at := x.c.at(e.op)
	at.Seq = e.what.Seq
	x.enq.Overdue(at, e.what, elapsed)
}

// watch has e watched until its end.
func (x *libraryExecutor) watch(e *enqueued) {
	d := &x.watched
	d.Lock()
	defer d.Unlock()
	if d.list = append(d.list, e); len(d.list) == 1 {
		go x.pollWatched()
	}
}

// pollWatched polls the operations under way until there are none.
func (x *libraryExecutor) pollWatched() {
	d := &x.watched
	var list []*enqueued
	for pause, before := pollPause, 0; ; {
		d.Lock()
		list = append(list[:0], d.list...)
		d.Unlock()
		ended := x.pollEnqueued(list)
		if pause = min(2*pause, longestPoll); len(ended) > 0 || len(list) != before {
			pause = pollPause
		}
		before = len(list) - len(ended)
		d.Lock()
		d.list = slices.DeleteFunc(d.list, func(e *enqueued) bool { return ended[e] })
		idle := len(d.list) == 0
		d.Unlock()
		if idle {
			return
		}
		time.Sleep(pause)
	}
}

// pollEnqueued records those that have ended, and returns them. It queries only the first of each stream that hasn't
// ended: a stream's work ends in its order.
func (x *libraryExecutor) pollEnqueued(list []*enqueued) map[*enqueued]bool {
	if unbind, err := x.bind(); err == nil {
		defer unbind()
	}
	broken := x.c.b.Cause()
	var ended map[*enqueued]bool
	var busy []*device.Stream
	for _, e := range list {
		if broken == nil && slices.ContainsFunc(busy, e.s.Equal) {
			continue
		}
		done, err := x.pollOp(e, broken)
		if !done {
			busy = append(busy, e.s)
			continue
		}
		if ended == nil {
			ended = map[*enqueued]bool{}
		}
		ended[e] = true
		x.finish(e, err)
		if err != nil {
			var site uint16
			if len(e.calls) > 0 { // an operation on a window has none
				site = e.calls[0].Site
			}
			x.fatalBehind(err, site)
		}
	}
	return ended
}

// noteDone notes, when the communicator breaks, which operations are done but not yet noticed, and a graph's run that is
// under way. The backend ends what is under way only after this, and from then on events and words don't tell it apart.
func (x *libraryExecutor) noteDone() {
	x.broke.Do(func() {
		x.replays.noteRunning()
		if unbind, err := x.bind(); err == nil {
			defer unbind()
		}
		x.watched.Lock()
		defer x.watched.Unlock()
		for _, e := range x.watched.list {
			if done, err := e.on.event.Query(); done && err == nil {
				e.on.done.Store(true)
			}
		}
	})
}

// idle reports whether nothing that the backend has put on a stream is under way, noticed by the watch or not yet.
func (x *libraryExecutor) idle() bool {
	x.watched.Lock()
	defer x.watched.Unlock()
	return !slices.ContainsFunc(x.watched.list, func(e *enqueued) bool {
		done, err := e.on.event.Query()
		return !done && err == nil
	})
}

// pollOp reports whether operations have ended, and with which error: they have ended when the
// communicator is broken.
func (x *libraryExecutor) pollOp(e *enqueued, broken error) (done bool, err error) {
	done, err = e.on.event.Query()
	switch {
	case done || err != nil || broken != nil:
		return true, e.on.endError(err)
	case e.since.IsZero():
		if began, _ := e.began.Query(); began {
			e.since = time.Now()
			if e.work != nil {
				e.work.startOn(e.on)
			}
			for _, o := range e.calls {
				x.c.rec.Start(o.record, &o.Op)
			}
		}
	case time.Since(e.since) > e.what.Timeout:
		x.overdue(e, time.Since(e.since))
	}
	return false, nil
}

// finish ends operations.
func (x *libraryExecutor) finish(e *enqueued, err error) {
	c := x.c
	_ = e.began.Close()
	c.attempt(e.op, e, func() error {
		for _, o := range e.calls {
			c.finish(o, err)
		}
		if len(e.calls) == 0 && err != nil { // of a window
			c.failed(err)
			c.fatal(err)
		}
		return nil
	}, func(error) {})
	if e.work != nil {
		e.work.completeOn(e.on, err)
	}
	c.gate.exit()
}
