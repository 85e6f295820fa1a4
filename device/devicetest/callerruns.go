package devicetest

import (
	"bytes"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

var callerRunsCases = []testCase{
	{"Order", 1, func(c *test) {
		// Work that was enqueued before has run, and work that is enqueued meanwhile runs after.
		t, k := c.drv.(driver.CallerRuns), c.drv.(driver.HostKernels)
		const n = 5000
		a, b := pattern(n, 1), pattern(n, 2)
		p, q := c.put(0, a), c.put(0, b)
		s := c.stream(0)
		c.must(c.drv.Fill(s, p, 7, n))
		c.sync(s)
		c.enter(t, s)
		c.must(c.drv.Copy(s, q, p, n, driver.DeviceToDevice))
		if done, err := c.drv.StreamQuery(s); err != nil || done {
			c.fail("StreamQuery = %v, %v in a turn with work behind it", done, err)
		}
		v, err := k.View(p, n)
		c.must(err)
		mine := unsafe.Slice((*byte)(v), n)
		if !bytes.Equal(mine, bytes.Repeat([]byte{7}, n)) {
			c.fail("a turn doesn't see what the stream did before")
		}
		copy(mine, a)
		c.must(t.StreamRelease(s))
		c.sync(s)
		if !bytes.Equal(c.get(0, q, n), a) {
			c.fail("what was enqueued in a turn ran before its end")
		}
	}},
	{"Busy", 1, func(c *test) {
		t, s := c.drv.(driver.CallerRuns), c.stream(0)
		release := c.hold(s)
		if entered, err := t.StreamTryAcquire(s, "turn"); err != nil || entered {
			c.fail("StreamTryAcquire = %v, %v on a busy stream", entered, err)
		}
		release()
		c.sync(s)
		c.enter(t, s)
		if entered, err := t.StreamTryAcquire(s, "turn"); err != nil || entered {
			c.fail("StreamTryAcquire = %v, %v on a stream that was entered", entered, err)
		}
		c.must(t.StreamRelease(s))
		c.refused(t.StreamRelease(s), driver.ErrInvalidArgument, "StreamRelease without StreamTryAcquire")
		for range 200 { // right behind work that has just ended
			c.do(s, func() {})
			c.sync(s)
			c.enter(t, s)
			c.do(s, func() {})
			c.must(t.StreamRelease(s))
			c.sync(s)
		}
	}},
	{"Events", 1, func(c *test) {
		t, s, other := c.drv.(driver.CallerRuns), c.stream(0), c.stream(0)
		c.enter(t, s)
		e := c.event(0, false)
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(other, e))
		for what, query := range map[string]func() (bool, error){
			"the event": func() (bool, error) { return c.drv.EventQuery(e) },
			"a waiter":  func() (bool, error) { return c.drv.StreamQuery(other) },
		} {
			if done, err := query(); err != nil || done {
				c.fail("%s is done (%v, %v) before the turn that it's behind", what, done, err)
			}
		}
		c.must(t.StreamRelease(s))
		c.sync(other)
	}},
	{"Failed", 1, func(c *test) {
		t, s := c.drv.(driver.CallerRuns), c.stream(0)
		c.must(c.drv.HostFunc(s, "bad", func() error { return errTest }))
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize")
		_, err := t.StreamTryAcquire(s, "turn")
		c.carries(err, "StreamTryAcquire")
		c.recover(s)
		c.enter(t, s)
		c.must(t.StreamRelease(s))
	}},
	{"Continue", 1, func(c *test) {
		// The rest of a turn runs before work that was enqueued in it; no other caller gets the stream in between.
		t, s, over := c.drv.(driver.CallerRuns), c.stream(0), make(chan struct{})
		var order []string
		note := func(what string) func() error {
			return func() error { order = append(order, what); return nil }
		}
		c.enter(t, s)
		c.must(c.drv.HostFunc(s, "behind", note("behind")))
		c.must(t.StreamContinue(s, func() error { <-over; return note("rest")() }))
		if done, err := c.drv.StreamQuery(s); err != nil || done {
			c.fail("StreamQuery = %v, %v while the rest of a turn is under way", done, err)
		}
		if entered, err := t.StreamTryAcquire(s, "turn"); err != nil || entered {
			c.fail("StreamTryAcquire = %v, %v while the rest of a turn is under way", entered, err)
		}
		c.refused(t.StreamRelease(s), driver.ErrInvalidArgument, "StreamRelease after StreamContinue")
		c.must(c.drv.HostFunc(s, "last", note("last")))
		close(over)
		c.sync(s)
		if want := []string{"rest", "behind", "last"}; !slices.Equal(order, want) {
			c.fail("the order was %v, not %v", order, want)
		}
		c.refused(t.StreamContinue(s, note("none")), driver.ErrInvalidArgument, "StreamContinue without StreamTryAcquire")
		c.enterAs(t, s, "bad")
		c.refused(t.StreamContinue(s, nil), driver.ErrInvalidArgument, "StreamContinue of nothing")
		c.must(c.drv.HostFunc(s, "left out", note("left out")))
		c.must(t.StreamContinue(s, func() error { return errTest }))
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize")
		c.recover(s)
		if len(order) != 3 {
			c.fail("work behind a turn that has failed ran")
		}
	}},
}

// enter enters a stream that has no work.
func (c *test) enter(t driver.CallerRuns, s driver.StreamHandle) { c.enterAs(t, s, "turn") }

func (c *test) enterAs(t driver.CallerRuns, s driver.StreamHandle, name string) {
	entered, err := t.StreamTryAcquire(s, name)
	c.must(err)
	if !entered {
		c.fail("a stream without work could not be entered")
	}
}
