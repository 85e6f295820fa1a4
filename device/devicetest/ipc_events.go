package devicetest

import (
	"bytes"
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
)

// ipcEventCases are those of other events, since these are events as well, and what is special.
func ipcEventCases() []testCase {
	cases := []testCase{{"Refused", 1, refusedIPCEvents}, {"Capture", 1, capturedIPCEvent}, {"Many", 1, manyIPCRecords}}
	for _, tc := range eventCases {
		if tc.name == "Elapsed" {
			continue // they keep no time
		}
		run := tc.run
		tc.run = func(c *test) {
			c.ipc = true
			run(c)
		}
		cases = append(cases, tc)
	}
	return cases
}

func refusedIPCEvents(c *test) {
	ipc, s := c.drv.(driver.IPCEvents), c.stream(0)
	plain := c.event(0, false)
	c.ipc = true
	e, f := c.event(0, false), c.event(0, false)
	good, err := ipc.IPCEventHandle(e)
	c.must(err)
	other, err := ipc.IPCEventHandle(f)
	c.must(err)
	if bytes.Equal(good, other) {
		c.fail("two events have one handle")
	}
	_, err = ipc.IPCEventCreate(c.n)
	c.refused(err, driver.ErrWrongDevice, "an event of a device that there isn't")
	_, err = ipc.IPCEventHandle(plain)
	c.refused(err, driver.ErrInvalidArgument, "a handle of an ordinary event")
	_, err = ipc.IPCEventHandle(0)
	c.refused(err, driver.ErrInvalidHandle, "a handle of no event")
	_, err = ipc.IPCEventOpen(0, good)
	c.refused(err, driver.ErrInvalidArgument, "opening the process's own event")
	_, err = ipc.IPCEventOpen(c.n, good)
	c.refused(err, driver.ErrWrongDevice, "opening on a device that there isn't")
	for _, bad := range [][]byte{nil, good[:len(good)-1], append(slices.Clone(good), 0), make([]byte, len(good)),
		bytes.Repeat([]byte{0xff}, len(good))} {
		_, err = ipc.IPCEventOpen(0, bad)
		c.refused(err, driver.ErrInvalidArgument, "a handle that is none")
	}
	_, err = c.drv.EventElapsed(e, e)
	c.refused(err, driver.ErrInvalidArgument, "the time of an event that keeps none")
	gone, err := ipc.IPCEventCreate(0)
	c.must(err)
	c.must(c.drv.EventDestroy(gone))
	_, err = ipc.IPCEventHandle(gone)
	c.refused(err, driver.ErrInvalidHandle, "a handle of a destroyed event")
	c.refused(c.drv.EventRecord(gone, s), driver.ErrInvalidHandle, "recording a destroyed event")
}

func capturedIPCEvent(c *test) {
	g, ok := c.drv.(driver.Graphs)
	if !ok {
		return
	}
	c.ipc = true
	e, s := c.event(0, false), c.stream(0)
	c.must(g.CaptureBegin(s))
	c.refused(c.drv.EventRecord(e, s), driver.ErrCapture, "recording it in a capture")
	_, err := g.CaptureEnd(s)
	c.refused(err, driver.ErrCapture, "the capture in which it was tried")
	c.must(c.drv.EventRecord(e, s))
	c.sync(s)
}

// manyIPCRecords records as often as it's permitted while nothing is done, and far more often when it is. CUDA permits
// any number, but a stream that is held back takes only some thousand operations before a call waits.
func manyIPCRecords(c *test) {
	c.ipc = true
	e, s := c.event(0, false), c.stream(0)
	release := c.hold(s)
	recorded := 0
	for ; recorded < 500; recorded++ {
		if err := c.drv.EventRecord(e, s); err != nil {
			c.refused(err, driver.ErrNotReady, "one record too many")
			break
		}
	}
	if recorded < 31 {
		c.fail("only %d records can be under way", recorded)
	}
	if done, err := c.drv.EventQuery(e); done || err != nil {
		c.fail("EventQuery = %v, %v with work in front of it held back", done, err)
	}
	release()
	c.sync(s)
	for range 1000 {
		c.must(c.drv.EventRecord(e, s))
		c.must(c.drv.EventSynchronize(c.ctx, e))
	}
}
