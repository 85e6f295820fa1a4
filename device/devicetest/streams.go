package devicetest

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

var streamCases = []testCase{
	{"Priority", 1, func(c *test) {
		p, err := c.drv.Properties(0)
		c.must(err)
		for level := range p.PriorityLevels {
			s, err := c.drv.StreamCreate(0, level)
			c.must(err)
			c.must(c.drv.StreamDestroy(s))
		}
		for _, level := range []int{-1, p.PriorityLevels} {
			_, err := c.drv.StreamCreate(0, level)
			c.refused(err, driver.ErrInvalidArgument, "a priority that there isn't")
		}
	}},
	{"Order", 1, func(c *test) {
		// Each copy undoes what the one before it did, so any other order leaves other bytes.
		const n = 100_000
		a, b := pattern(n, 1), pattern(n, 2)
		pa, pb, out := c.put(0, a), c.put(0, b), c.malloc(0, n)
		s := c.stream(0)
		release := c.hold(s)
		for range 50 {
			c.must(c.drv.Copy(s, out, pa, n, driver.DeviceToDevice))
			c.must(c.drv.Fill(s, out, 0, n))
			c.must(c.drv.Copy(s, out, pb, n, driver.DeviceToDevice))
		}
		release()
		c.sync(s)
		if !bytes.Equal(c.get(0, out, n), b) {
			c.fail("the last copy of a stream was not the last to run")
		}
	}},
	{"HostFuncOrder", 1, func(c *test) {
		s := c.stream(0)
		var seen []int // written by the stream's functions only, one after the other
		for i := range 1000 {
			c.do(s, func() { seen = append(seen, i) })
		}
		c.sync(s)
		for i, v := range seen {
			if v != i {
				c.fail("function %d ran as number %d", v, i)
			}
		}
		if len(seen) != 1000 {
			c.fail("%d of 1000 functions ran", len(seen))
		}
	}},
	{"HostFuncSeesCopies", 1, func(c *test) {
		s := c.stream(0)
		data := pattern(50_000, 1)
		p := c.put(0, data)
		h, b := c.pinned(len(data))
		release := c.hold(s)
		c.must(c.drv.Copy(s, h, p, len(data), driver.DeviceToHost))
		ok := false
		c.do(s, func() { ok = bytes.Equal(b, data); clear(b) })
		c.must(c.drv.Copy(s, p, h, len(data), driver.HostToDevice))
		release()
		c.sync(s)
		if !ok {
			c.fail("a host function ran before the copy in front of it")
		}
		if !bytes.Equal(c.get(0, p, len(data)), make([]byte, len(data))) {
			c.fail("a copy ran before the host function in front of it")
		}
	}},
	{"Asynchronous", 1, func(c *test) {
		s := c.stream(0)
		p, q := c.malloc(0, 4096), c.malloc(0, 4096)
		release := c.hold(s)
		var ran atomic.Bool
		c.do(s, func() { ran.Store(true) })
		c.must(c.drv.Copy(s, p, q, 4096, driver.DeviceToDevice))
		if done, err := c.drv.StreamQuery(s); done || err != nil {
			c.fail("StreamQuery = %v, %v with work held back", done, err)
		}
		if ran.Load() {
			c.fail("work ran before what is in front of it")
		}
		release()
		c.sync(s)
		if done, err := c.drv.StreamQuery(s); !done || err != nil || !ran.Load() {
			c.fail("StreamQuery = %v, %v after StreamSynchronize", done, err)
		}
	}},
	{"QueryCountsWhatRuns", 1, func(c *test) {
		s := c.stream(0)
		began := make(chan struct{})
		gate := make(chan struct{})
		c.do(s, func() { close(began); <-gate })
		<-began
		done, err := c.drv.StreamQuery(s)
		close(gate)
		if done || err != nil {
			c.fail("StreamQuery = %v, %v while the last work runs", done, err)
		}
	}},
	{"Independent", 1, func(c *test) {
		blocked := c.stream(0)
		c.hold(blocked)
		for dev := range c.n {
			s := c.stream(dev)
			p, q := c.malloc(dev, 4096), c.malloc(dev, 4096)
			c.must(c.drv.Copy(s, p, q, 4096, driver.DeviceToDevice))
			c.do(s, func() {})
			c.sync(s)
		}
	}},
	{"ManyBlocked", 1, func(c *test) {
		// More host functions block at once than there are units, and copies still run.
		for range c.blocked {
			c.hold(c.stream(0))
		}
		s := c.stream(0)
		p, q := c.malloc(0, 4096), c.malloc(0, 4096)
		c.must(c.drv.Copy(s, p, q, 4096, driver.DeviceToDevice))
		c.sync(s)
	}},
	{"SynchronizeDevice", 1, func(c *test) {
		var ran atomic.Int32
		for range 3 {
			s := c.stream(0)
			for range 10 {
				c.do(s, func() { ran.Add(1) })
			}
		}
		c.must(c.drv.Synchronize(c.ctx, 0))
		if n := ran.Load(); n != 30 {
			c.fail("%d of 30 functions had run", n)
		}
	}},
	{"SynchronizeNamedDevice", 2, func(c *test) {
		c.hold(c.stream(0))
		var ran atomic.Bool
		c.do(c.stream(1), func() { ran.Store(true) })
		if err := c.drv.Synchronize(c.ctx, 1); err != nil {
			c.fail("device 0 is held back, device 1 is not: %w", err)
		}
		if !ran.Load() {
			c.fail("the work of device 1 had not run")
		}
		ctx, cancel := context.WithTimeout(c.ctx, 10*time.Millisecond)
		defer cancel()
		c.refused(c.drv.Synchronize(ctx, 0), driver.ErrTimeout, "device 0, which is held back")
	}},
	{"Deadline", 1, func(c *test) {
		s := c.stream(0)
		e := c.event(0, false)
		release := c.hold(s)
		c.must(c.drv.EventRecord(e, s))
		ctx, cancel := context.WithTimeout(c.ctx, 10*time.Millisecond)
		defer cancel()
		c.refused(c.drv.StreamSynchronize(ctx, s), driver.ErrTimeout, "StreamSynchronize")
		c.refused(c.drv.EventSynchronize(ctx, e), driver.ErrTimeout, "EventSynchronize")
		c.refused(c.drv.Synchronize(ctx, 0), driver.ErrTimeout, "Synchronize")
		canceled, stop := context.WithCancel(c.ctx)
		stop()
		c.refused(c.drv.StreamSynchronize(canceled, s), driver.ErrCanceled, "StreamSynchronize with a canceled context")
		release()
		c.sync(s) // the work went on
	}},
	{"Destroy", 1, func(c *test) {
		s, err := c.drv.StreamCreate(0, 0)
		c.must(err)
		var ran atomic.Bool
		gate, end := make(chan struct{}), make(chan struct{})
		c.do(s, func() { <-gate })
		c.do(s, func() { ran.Store(true); close(end) })
		c.must(c.drv.StreamDestroy(s))
		c.refused(c.drv.StreamDestroy(s), driver.ErrInvalidHandle, "destroying twice")
		c.refused(c.drv.HostFunc(s, "late", func() error { return nil }), driver.ErrInvalidHandle, "HostFunc")
		close(gate)
		select {
		case <-end:
		case <-c.ctx.Done():
			c.fail("work that a stream had when it was destroyed doesn't run")
		}
		c.must(c.drv.Synchronize(c.ctx, 0))
	}},
	{"ManyStreams", 1, func(c *test) {
		var sum atomic.Int64
		for i := range 200 {
			c.do(c.stream(i%c.n), func() { sum.Add(int64(i)) })
		}
		for dev := range c.n {
			c.must(c.drv.Synchronize(c.ctx, dev))
		}
		if sum.Load() != 200*199/2 {
			c.fail("not all work of 200 streams ran")
		}
	}},
}

var errTest = errors.New("a failure on purpose")

// bad enqueues work that fails.
func (c *test) bad(s driver.StreamHandle) {
	c.must(c.drv.HostFunc(s, "bad", func() error { return errTest }))
}

// carries demands that an error is the one of the work that failed on purpose.
func (c *test) carries(err error, what string) {
	var w *driver.WorkError
	if !errors.Is(err, errTest) || !errors.Is(err, driver.ErrFailed) || !errors.As(err, &w) {
		c.fail("%s = %v, want a *driver.WorkError with %q", what, err, errTest)
	}
	if w.Work != "bad" {
		c.fail("%s: %v: the error doesn't name the work that failed", what, err)
	}
}

// recover takes a failure from a stream, if the driver can.
func (c *test) recover(s driver.StreamHandle) (ok bool) {
	err := c.drv.StreamRecover(c.ctx, s)
	if errors.Is(err, driver.ErrUnsupported) {
		return false
	}
	c.carries(err, "StreamRecover")
	return true
}

var errorCases = []testCase{
	{"AsyncError", 1, func(c *test) {
		s := c.stream(0)
		release := c.hold(s)
		c.bad(s) // which the call can't know
		release()
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize")
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize, the second time")
		_, err := c.drv.StreamQuery(s)
		c.carries(err, "StreamQuery")
		c.carries(c.drv.Synchronize(c.ctx, 0), "Synchronize of the device")
		c.recover(s)
	}},
	{"AsyncErrorOfOtherDevice", 2, func(c *test) {
		s := c.stream(0)
		c.bad(s)
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize")
		c.must(c.drv.Synchronize(c.ctx, 1))
		c.recover(s)
	}},
	{"ErrorStopsWork", 1, func(c *test) {
		s := c.stream(0)
		c.bad(s)
		ran := false
		c.do(s, func() { ran = true })
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize")
		if ran {
			c.fail("work behind a failure ran")
		}
		c.recover(s)
	}},
	{"ErrorOfEvent", 1, func(c *test) {
		s, e := c.stream(0), c.event(0, false)
		c.bad(s)
		c.must(c.drv.EventRecord(e, s))
		c.carries(c.drv.EventSynchronize(c.ctx, e), "EventSynchronize")
		if done, err := c.drv.EventQuery(e); !done {
			c.fail("EventQuery = %v, %v for an event behind a failure", done, err)
		} else {
			c.carries(err, "EventQuery")
		}
		c.recover(s)
	}},
	{"ErrorPassedOn", 1, func(c *test) {
		s, o, e := c.stream(0), c.stream(0), c.event(0, false)
		release := c.hold(s)
		c.bad(s)
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		ran := false
		c.do(o, func() { ran = true })
		release()
		c.carries(c.drv.StreamSynchronize(c.ctx, o), "StreamSynchronize of a stream that waited for the one that failed")
		if ran {
			c.fail("work ran that was to wait for work that failed")
		}
		c.recover(o)
		c.recover(s)
	}},
	{"EventBeforeError", 1, func(c *test) {
		s, e := c.stream(0), c.event(0, false)
		release := c.hold(s)
		c.must(c.drv.EventRecord(e, s))
		c.bad(s)
		release()
		c.must(c.drv.EventSynchronize(c.ctx, e)) // what it stands for is fine
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize")
		c.recover(s)
	}},
	{"Panic", 1, func(c *test) {
		s := c.stream(0)
		c.must(c.drv.HostFunc(s, "explode", func() error { panic("on purpose") }))
		err := c.drv.StreamSynchronize(c.ctx, s)
		var w *driver.WorkError
		if !errors.As(err, &w) || w.Work != "explode" {
			c.fail("StreamSynchronize = %v, want a *driver.WorkError of the function that panicked", err)
		}
		c.drv.StreamRecover(c.ctx, s)
	}},
	{"Recover", 1, func(c *test) {
		s := c.stream(0)
		if err := c.drv.StreamRecover(c.ctx, s); err != nil {
			if errors.Is(err, driver.ErrUnsupported) {
				return
			}
			c.fail("StreamRecover of a sound stream: %w", err)
		}
		release := c.hold(s)
		c.bad(s)
		skipped, ran := false, false
		c.do(s, func() { skipped = true })
		release()
		c.recover(s)
		c.do(s, func() { ran = true })
		c.sync(s)
		if skipped || !ran {
			c.fail("work before StreamRecover ran: %v, work after it ran: %v", skipped, ran)
		}
		c.must(c.drv.Synchronize(c.ctx, 0))
	}},
	{"OthersGoOn", 1, func(c *test) {
		bad, s := c.stream(0), c.stream(0)
		c.bad(bad)
		c.carries(c.drv.StreamSynchronize(c.ctx, bad), "StreamSynchronize")
		if !c.recover(bad) {
			return // such a device may be lost as a whole
		}
		c.bad(bad)
		data := pattern(1000, 1)
		p, q := c.put(0, data), c.malloc(0, 1000)
		c.must(c.drv.Copy(s, q, p, 1000, driver.DeviceToDevice))
		c.sync(s)
		if !bytes.Equal(c.get(0, q, 1000), data) {
			c.fail("a copy on a sound stream is wrong after another stream failed")
		}
		c.recover(bad)
	}},
}
