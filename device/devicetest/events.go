package devicetest

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

var eventCases = []testCase{
	{"NeverRecorded", 1, func(c *test) {
		e, s := c.event(0, false), c.stream(0)
		if done, err := c.drv.EventQuery(e); !done || err != nil {
			c.fail("EventQuery of a new event = %v, %v", done, err)
		}
		c.must(c.drv.EventSynchronize(c.ctx, e))
		c.must(c.drv.StreamWaitEvent(s, e))
		c.sync(s)
	}},
	{"Query", 1, func(c *test) {
		e, s := c.event(0, false), c.stream(0)
		release := c.hold(s)
		c.must(c.drv.EventRecord(e, s))
		if done, err := c.drv.EventQuery(e); done || err != nil {
			c.fail("EventQuery = %v, %v with work in front of it held back", done, err)
		}
		release()
		c.must(c.drv.EventSynchronize(c.ctx, e))
		if done, err := c.drv.EventQuery(e); !done || err != nil {
			c.fail("EventQuery = %v, %v after EventSynchronize", done, err)
		}
	}},
	{"NotLaterWork", 1, func(c *test) {
		e, s := c.event(0, false), c.stream(0)
		c.must(c.drv.EventRecord(e, s))
		c.hold(s)
		c.must(c.drv.EventSynchronize(c.ctx, e))
	}},
	{"Wait", 1, func(c *test) {
		const n = 200_000
		data := pattern(n, 1)
		h, b := c.pinned(n)
		p, q := c.malloc(0, n), c.malloc(0, n)
		s, o, e := c.stream(0), c.stream(0), c.event(0, false)
		clear(b) // which may be what another case had, with these bytes
		release := c.hold(s)
		c.do(s, func() { copy(b, data) })
		c.must(c.drv.Copy(s, p, h, n, driver.HostToDevice))
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		c.must(c.drv.Copy(o, q, p, n, driver.DeviceToDevice))
		if done, err := c.drv.StreamQuery(o); done || err != nil {
			c.fail("StreamQuery = %v, %v of a stream that waits", done, err)
		}
		release()
		c.sync(o)
		if !bytes.Equal(c.get(0, q, n), data) {
			c.fail("a stream didn't wait for the event of another")
		}
	}},
	{"WaitAcrossDevices", 2, func(c *test) {
		s, o, e := c.stream(0), c.stream(1), c.event(0, false)
		release := c.hold(s)
		var first, second atomic.Bool
		c.do(s, func() { first.Store(true) })
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		c.do(o, func() { second.Store(first.Load()) })
		release()
		c.sync(o)
		if !second.Load() {
			c.fail("a stream of device 1 didn't wait for an event of device 0")
		}
	}},
	{"Versions", 1, func(c *test) {
		// A wait is for the record at the time of the call, whatever is recorded later.
		s, o, e := c.stream(0), c.stream(0), c.event(0, false)
		first, turn := c.hold(s), c.hold(o) // o gets to its wait only when e has been recorded anew
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		ran := make(chan struct{})
		c.do(o, func() { close(ran) })
		c.hold(s)
		c.must(c.drv.EventRecord(e, s))
		turn()
		first()
		select {
		case <-ran:
		case <-c.ctx.Done():
			c.fail("a stream waits for a record that came after its StreamWaitEvent")
		}
		if done, err := c.drv.EventQuery(e); done || err != nil {
			c.fail("EventQuery = %v, %v: the event's last record is still to come", done, err)
		}
	}},
	{"VersionsOfTwoStreams", 1, func(c *test) {
		// The later record happens first: it must not end waits for the earlier one.
		s, r, o, e := c.stream(0), c.stream(0), c.stream(0), c.event(0, false)
		release, turn := c.hold(s), c.hold(o)
		var first, second atomic.Bool
		c.do(s, func() { first.Store(true) })
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		c.do(o, func() { second.Store(first.Load()) })
		c.must(c.drv.EventRecord(e, r))
		// Its last record is on r, which has no other work. CUDA's events of several processes have their records in the
		// order of the calls.
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		if err := c.drv.EventSynchronize(ctx, e); !c.ipc || !errors.Is(err, driver.ErrTimeout) {
			c.must(err)
		}
		turn()
		for range 100 { // time enough for a driver that doesn't wait to go on
			c.do(r, func() {})
			c.sync(r)
		}
		if done, err := c.drv.StreamQuery(o); done || err != nil {
			c.fail("StreamQuery = %v, %v: a wait ended by a later record on another stream", done, err)
		}
		release()
		c.sync(o)
		if !second.Load() {
			c.fail("a stream didn't wait for the record that it was told to wait for")
		}
	}},
	{"LastRecordCounts", 1, func(c *test) {
		s, o, e := c.stream(0), c.stream(0), c.event(0, false)
		c.must(c.drv.EventRecord(e, s))
		c.sync(s)
		release := c.hold(s)
		var first, second atomic.Bool
		c.do(s, func() { first.Store(true) })
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		c.do(o, func() { second.Store(first.Load()) })
		release()
		c.sync(o)
		if !second.Load() {
			c.fail("a wait took an event's former record, which is done, for its last")
		}
	}},
	{"DestroyedWhilePending", 1, func(c *test) {
		s, o := c.stream(0), c.stream(0)
		e, err := c.drv.EventCreate(0, false)
		c.must(err)
		release := c.hold(s)
		var first, second atomic.Bool
		c.do(s, func() { first.Store(true) })
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		c.must(c.drv.EventDestroy(e))
		c.do(o, func() { second.Store(first.Load()) })
		release()
		c.sync(o)
		if !second.Load() {
			c.fail("a wait for an event ended when the event was destroyed")
		}
	}},
	{"OtherDevice", 2, func(c *test) {
		c.refused(c.drv.EventRecord(c.event(0, false), c.stream(1)), driver.ErrWrongDevice,
			"recording an event of device 0 on device 1")
	}},
	{"Elapsed", 1, func(c *test) {
		s := c.stream(0)
		a, b, plain := c.event(0, true), c.event(0, true), c.event(0, false)
		_, err := c.drv.EventElapsed(a, b)
		c.refused(err, driver.ErrInvalidArgument, "EventElapsed of events that were never recorded")
		c.must(c.drv.EventRecord(a, s))
		c.must(c.drv.EventRecord(plain, s))
		release := c.hold(s)
		c.must(c.drv.EventRecord(b, s))
		_, err = c.drv.EventElapsed(a, b)
		c.refused(err, driver.ErrNotReady, "EventElapsed to an event that is still to come")
		release()
		c.sync(s)
		d, err := c.drv.EventElapsed(a, b)
		c.must(err)
		back, err := c.drv.EventElapsed(b, a)
		c.must(err)
		if d < 0 || back != -d {
			c.fail("%v from one event to the next, and %v back", d, back)
		}
		_, err = c.drv.EventElapsed(a, plain)
		c.refused(err, driver.ErrInvalidArgument, "EventElapsed of an event without timing")
		if c.n > 1 {
			o, e := c.stream(1), c.event(1, true)
			c.must(c.drv.EventRecord(e, o))
			c.sync(o)
			_, err = c.drv.EventElapsed(a, e)
			c.refused(err, driver.ErrWrongDevice, "EventElapsed between devices")
		}
	}},
}
