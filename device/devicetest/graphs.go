package devicetest

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// capture returns the instantiated graph of what f enqueues.
func (c *test) capture(s driver.StreamHandle, f func()) driver.ExecHandle {
	gr := c.drv.(driver.Graphs)
	g := c.captureGraph(s, f)
	x, err := gr.Instantiate(g)
	c.must(err)
	c.must(gr.GraphDestroy(g))
	c.after = append(c.after, func() { c.must(gr.ExecDestroy(x)) })
	return x
}

func (c *test) captureGraph(s driver.StreamHandle, f func()) driver.GraphHandle {
	gr := c.drv.(driver.Graphs)
	c.must(gr.CaptureBegin(s))
	f()
	g, err := gr.CaptureEnd(s)
	c.must(err)
	return g
}

// invalid demands that a capture has come to nothing, and that the stream works again.
func (c *test) invalid(s driver.StreamHandle, what string) {
	gr := c.drv.(driver.Graphs)
	if st, err := gr.CaptureStatus(s); st != driver.CaptureInvalidated || err != nil {
		c.fail("%s: CaptureStatus = %v, %v, want it invalidated", what, st, err)
	}
	_, err := gr.CaptureEnd(s)
	c.refused(err, driver.ErrCapture, what+": CaptureEnd")
	if st, err := gr.CaptureStatus(s); st != driver.NotCapturing || err != nil {
		c.fail("%s: CaptureStatus = %v, %v after CaptureEnd", what, st, err)
	}
	c.do(s, func() {})
	c.sync(s)
}

var graphCases = []testCase{
	{"Replay", 1, func(c *test) {
		gr, s := c.drv.(driver.Graphs), c.stream(0)
		const n = 50_000
		h, b := c.pinned(n)
		p, q := c.malloc(0, n), c.malloc(0, n)
		ran := 0
		x := c.capture(s, func() {
			if st, err := gr.CaptureStatus(s); st != driver.Capturing || err != nil {
				c.fail("CaptureStatus = %v, %v", st, err)
			}
			c.must(c.drv.Copy(s, p, h, n, driver.HostToDevice))
			c.must(c.drv.Copy(s, q, p, n, driver.DeviceToDevice))
			c.do(s, func() { ran++; clear(b) })
			c.must(c.drv.Copy(s, h, q, n, driver.DeviceToHost))
		})
		c.sync(s)
		if ran != 0 {
			c.fail("work ran while it was captured")
		}
		for i := range 5 { // with changing data
			copy(b, pattern(n, i))
			c.must(gr.GraphLaunch(x, s))
			c.sync(s)
			if !bytes.Equal(b, pattern(n, i)) || ran != i+1 {
				c.fail("replay %d gives other data, or ran its function not once", i)
			}
		}
	}},
	{"Order", 1, func(c *test) {
		gr, s := c.drv.(driver.Graphs), c.stream(0)
		var seen []int
		x := c.capture(s, func() {
			for i := range 3 {
				c.do(s, func() { seen = append(seen, i) })
			}
		})
		release := c.hold(s)
		c.do(s, func() { seen = append(seen, 10) })
		c.must(gr.GraphLaunch(x, s))
		c.do(s, func() { seen = append(seen, 11) })
		c.must(gr.GraphLaunch(x, s))
		release()
		c.sync(s)
		want := []int{10, 0, 1, 2, 11, 0, 1, 2}
		for i := range want {
			if len(seen) != len(want) || seen[i] != want[i] {
				c.fail("work ran in the order %v, want %v", seen, want)
			}
		}
	}},
	{"Fork", 1, func(c *test) {
		gr := c.drv.(driver.Graphs)
		s, o := c.stream(0), c.stream(0)
		fork, join := c.event(0, false), c.event(0, false)
		var a, b, both atomic.Bool
		meet := make(chan struct{})
		x := c.capture(s, func() {
			c.must(c.drv.EventRecord(fork, s))
			c.must(c.drv.StreamWaitEvent(o, fork))
			if st, err := gr.CaptureStatus(o); st != driver.Capturing || err != nil {
				c.fail("CaptureStatus of a stream that joined = %v, %v", st, err)
			}
			// The branches meet, so they must run side by side.
			c.do(s, func() { meet <- struct{}{}; a.Store(true) })
			c.do(o, func() { <-meet; b.Store(true) })
			c.must(c.drv.EventRecord(join, o))
			c.must(c.drv.StreamWaitEvent(s, join))
			c.do(s, func() { both.Store(a.Load() && b.Load()) })
		})
		for range 3 {
			a.Store(false)
			b.Store(false)
			c.must(gr.GraphLaunch(x, s))
			c.sync(s)
			if !both.Load() {
				c.fail("the branches of a graph were not done when it went on")
			}
		}
		if st, err := gr.CaptureStatus(o); st != driver.NotCapturing || err != nil {
			c.fail("CaptureStatus of the stream that had joined = %v, %v", st, err)
		}
	}},
	{"Nodes", 1, func(c *test) {
		gr := c.drv.(driver.Graphs)
		s, o, e := c.stream(0), c.stream(0), c.event(0, false)
		p := c.malloc(0, 64)
		g := c.captureGraph(s, func() {
			c.must(c.drv.Fill(s, p, 1, 64))
			c.must(c.drv.EventRecord(e, s))
			c.must(c.drv.StreamWaitEvent(o, e))
			c.do(o, func() {})
			c.must(c.drv.EventRecord(e, o))
			c.do(s, func() {})
			c.must(c.drv.StreamWaitEvent(s, e))
			c.must(c.drv.Fill(s, p, 2, 64))
		})
		defer func() { c.must(gr.GraphDestroy(g)) }()
		nodes, err := gr.GraphNodes(g)
		c.must(err)
		if len(nodes) != 4 {
			c.fail("there are %d nodes, want 4: %+v", len(nodes), nodes)
		}
		kinds := map[driver.ActivityKind]int{}
		for i, n := range nodes {
			kinds[n.Kind]++
			for _, d := range n.Deps {
				if d < 0 || d >= i {
					c.fail("node %d comes after node %d", i, d)
				}
			}
		}
		if kinds[driver.ActivityFill] != 2 || kinds[driver.ActivityHost] != 2 || len(nodes[0].Deps) != 0 ||
			len(nodes[3].Deps) != 2 {
			c.fail("the nodes are not as captured: %+v", nodes)
		}
	}},
	{"OtherStream", 1, func(c *test) {
		gr := c.drv.(driver.Graphs)
		s, o := c.stream(0), c.stream(0)
		var running, ran atomic.Int32
		x := c.capture(s, func() {
			c.do(s, func() {
				if running.Add(1) != 1 {
					panic("two runs of one graph overlap")
				}
				ran.Add(1)
				running.Add(-1)
			})
		})
		for range 20 {
			c.must(gr.GraphLaunch(x, s))
			c.must(gr.GraphLaunch(x, o))
		}
		c.sync(s)
		c.sync(o)
		if ran.Load() != 40 {
			c.fail("%d of 40 runs happened", ran.Load())
		}
	}},
	{"Nested", 1, func(c *test) {
		gr, s := c.drv.(driver.Graphs), c.stream(0)
		ran := 0
		inner := c.capture(s, func() { c.do(s, func() { ran++ }) })
		c.must(gr.CaptureBegin(s))
		err := gr.GraphLaunch(inner, s)
		g, err2 := gr.CaptureEnd(s)
		c.must(err2)
		c.must(gr.GraphDestroy(g))
		if errors.Is(err, driver.ErrUnsupported) {
			return // and the capture goes on
		}
		outer := c.capture(s, func() {
			c.must(gr.GraphLaunch(inner, s))
			c.do(s, func() { ran *= 10 })
			c.must(gr.GraphLaunch(inner, s))
		})
		c.must(gr.GraphLaunch(outer, s))
		c.sync(s)
		if ran != 11 {
			c.fail("a graph in a graph gave %d, want 11", ran)
		}
	}},
	{"Empty", 1, func(c *test) {
		s := c.stream(0)
		x := c.capture(s, func() {})
		c.must(c.drv.(driver.Graphs).GraphLaunch(x, s))
		c.sync(s)
	}},
	{"Update", 1, func(c *test) {
		gr, s := c.drv.(driver.Graphs), c.stream(0)
		p, q := c.malloc(0, 64), c.malloc(0, 64)
		record := func(dst driver.Ptr, v byte) func() {
			return func() { c.must(c.drv.Fill(s, dst, v, 64)); c.do(s, func() {}) }
		}
		x := c.capture(s, record(p, 1))
		other := c.captureGraph(s, record(q, 2))
		release := c.hold(s)
		c.must(gr.GraphLaunch(x, s)) // keeps what it was enqueued with
		c.must(gr.GraphUpdate(x, other))
		c.must(gr.GraphDestroy(other))
		c.must(gr.GraphLaunch(x, s))
		release()
		c.sync(s)
		if c.get(0, p, 1)[0] != 1 || c.get(0, q, 1)[0] != 2 {
			c.fail("after an update the first run wrote %d and the second %d, want 1 and 2", c.get(0, p, 1)[0],
				c.get(0, q, 1)[0])
		}
		for name, f := range map[string]func(){
			"fewer nodes": func() { c.do(s, func() {}) },
			"other kinds": func() { c.do(s, func() {}); c.must(c.drv.Fill(s, p, 1, 64)) },
		} {
			g := c.captureGraph(s, f)
			c.refused(gr.GraphUpdate(x, g), driver.ErrInvalidArgument, "an update with "+name)
			c.must(gr.GraphDestroy(g))
		}
		c.must(gr.GraphLaunch(x, s)) // as it was
		c.sync(s)
	}},
	{"Fails", 1, func(c *test) {
		gr, s := c.drv.(driver.Graphs), c.stream(0)
		fail, ran := true, 0
		x := c.capture(s, func() {
			c.must(c.drv.HostFunc(s, "bad", func() error {
				if fail {
					return errTest
				}
				return nil
			}))
			c.do(s, func() { ran++ })
		})
		c.must(gr.GraphLaunch(x, s))
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize after a replay failed")
		if ran != 0 {
			c.fail("a node ran behind one that failed")
		}
		if !c.recover(s) {
			return
		}
		fail = false
		c.must(gr.GraphLaunch(x, s))
		c.sync(s)
		if ran != 1 {
			c.fail("a graph doesn't run again after a replay failed")
		}
	}},
	{"FreedMemory", 1, func(c *test) {
		gr, s := c.drv.(driver.Graphs), c.stream(0)
		p, err := c.drv.Malloc(0, 4096)
		c.must(err)
		x := c.capture(s, func() { c.must(c.drv.Fill(s, p, 1, 4096)) })
		c.must(c.drv.Free(0, p))
		c.must(gr.GraphLaunch(x, s))
		err = c.drv.StreamSynchronize(c.ctx, s)
		if !errors.Is(err, driver.ErrFailed) || !errors.Is(err, driver.ErrInvalidArgument) {
			c.fail("replaying a fill of freed memory: %v, want work that failed for an invalid argument", err)
		}
		c.drv.StreamRecover(c.ctx, s)
		c.works()
	}},
	{"Misuse", 1, func(c *test) {
		gr, s, o := c.drv.(driver.Graphs), c.stream(0), c.stream(0)
		e := c.event(0, false)
		begin := func() { c.must(gr.CaptureBegin(s)) }
		_, err := gr.CaptureEnd(s)
		c.refused(err, driver.ErrCapture, "an end without a beginning")

		begin()
		c.refused(gr.CaptureBegin(s), driver.ErrCapture, "beginning twice")
		c.refused(c.drv.StreamDestroy(s), driver.ErrCapture, "destroying a stream that is captured")
		g, err := gr.CaptureEnd(s) // neither has harmed it
		c.must(err)
		c.must(gr.GraphDestroy(g))

		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		for name, call := range map[string]func() error{
			"StreamSynchronize": func() error { return c.drv.StreamSynchronize(ctx, s) },
			"StreamQuery":       func() error { _, err := c.drv.StreamQuery(s); return err },
			"StreamRecover":     func() error { return c.drv.StreamRecover(ctx, s) },
			"Synchronize":       func() error { return c.drv.Synchronize(ctx, 0) },
			"EventSynchronize":  func() error { c.must(c.drv.EventRecord(e, s)); return c.drv.EventSynchronize(ctx, e) },
			"EventQuery":        func() error { c.must(c.drv.EventRecord(e, s)); _, err := c.drv.EventQuery(e); return err },
			"wait for what is outside": func() error {
				out := c.event(0, false)
				c.must(c.drv.EventRecord(out, o))
				return c.drv.StreamWaitEvent(s, out)
			},
		} {
			begin()
			c.refused(call(), driver.ErrCapture, name+" in a capture")
			c.refused(c.drv.HostFunc(s, "x", func() error { return nil }), driver.ErrCapture,
				"work in a capture that "+name+" has invalidated")
			c.invalid(s, name)
		}

		begin() // a stream that joined and was not joined to
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		c.do(o, func() {})
		_, err = gr.CaptureEnd(s)
		c.refused(err, driver.ErrCapture, "an end with work that was not joined")
		c.do(o, func() {})
		c.sync(o)

		begin() // ended elsewhere
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.StreamWaitEvent(o, e))
		_, err = gr.CaptureEnd(o)
		c.refused(err, driver.ErrCapture, "an end on a stream that only joined")
		c.invalid(s, "an end on another stream")

		begin() // an event of a capture that is over
		c.must(c.drv.EventRecord(e, s))
		g, err = gr.CaptureEnd(s)
		c.must(err)
		c.must(gr.GraphDestroy(g))
		c.refused(c.drv.StreamWaitEvent(o, e), driver.ErrCapture, "waiting for an event of a capture that is over")
		c.refused(c.drv.EventSynchronize(ctx, e), driver.ErrCapture, "EventSynchronize of an event of a capture that is over")
		c.must(c.drv.EventRecord(e, o)) // after which it is like any other
		c.must(c.drv.EventSynchronize(c.ctx, e))

		begin() // two captures that meet
		c.must(gr.CaptureBegin(o))
		c.must(c.drv.EventRecord(e, s))
		c.refused(c.drv.StreamWaitEvent(o, e), driver.ErrCapture, "waiting for an event of another capture")
		c.invalid(o, "a meeting of captures")
		c.invalid(s, "a meeting of captures")

		for name, err := range map[string]error{
			"CaptureBegin": gr.CaptureBegin(0),
			"Instantiate":  second(gr.Instantiate(g)),
			"GraphNodes":   second(gr.GraphNodes(g)),
			"GraphDestroy": gr.GraphDestroy(g),
			"GraphLaunch":  gr.GraphLaunch(0, s),
			"GraphUpdate":  gr.GraphUpdate(0, g),
			"ExecDestroy":  gr.ExecDestroy(driver.ExecHandle(g)),
		} {
			c.refused(err, driver.ErrInvalidHandle, name+" with what is null or destroyed")
		}
		c.works()
	}},
}

func second[T any](_ T, err error) error { return err }
