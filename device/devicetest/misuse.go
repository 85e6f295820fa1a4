package devicetest

import (
	"bytes"

	"github.com/chorus-comms/chorus/device/driver"
)

// misuseCases use what there isn't, in every call that takes it, and see that the device still works.
var misuseCases = []testCase{
	{"Streams", 1, func(c *test) {
		gone, err := c.drv.StreamCreate(0, 0)
		c.must(err)
		c.must(c.drv.StreamDestroy(gone))
		e, p, q := c.event(0, false), c.malloc(0, 64), c.malloc(0, 64)
		for name, s := range map[string]driver.StreamHandle{
			"null": 0, "destroyed": gone, "made up": 12345, "an event": driver.StreamHandle(e),
		} {
			for call, err := range map[string]error{
				"StreamDestroy":     c.drv.StreamDestroy(s),
				"StreamSynchronize": c.drv.StreamSynchronize(c.ctx, s),
				"StreamRecover":     c.drv.StreamRecover(c.ctx, s),
				"StreamWaitEvent":   c.drv.StreamWaitEvent(s, e),
				"EventRecord":       c.drv.EventRecord(e, s),
				"HostFunc":          c.drv.HostFunc(s, "x", func() error { return nil }),
				"Copy":              c.drv.Copy(s, p, q, 64, driver.DeviceToDevice),
				"Fill":              c.drv.Fill(s, p, 0, 64),
			} {
				c.refused(err, driver.ErrInvalidHandle, call+" with a stream that is "+name)
			}
			_, err := c.drv.StreamQuery(s)
			c.refused(err, driver.ErrInvalidHandle, "StreamQuery with a stream that is "+name)
		}
		c.works()
	}},
	{"Events", 1, func(c *test) {
		gone, err := c.drv.EventCreate(0, true)
		c.must(err)
		c.must(c.drv.EventDestroy(gone))
		s, good := c.stream(0), c.event(0, true)
		for name, e := range map[string]driver.EventHandle{
			"null": 0, "destroyed": gone, "made up": 12345, "a stream": driver.EventHandle(s),
		} {
			_, qerr := c.drv.EventQuery(e)
			_, xerr := c.drv.EventElapsed(good, e)
			for call, err := range map[string]error{
				"EventDestroy":     c.drv.EventDestroy(e),
				"EventSynchronize": c.drv.EventSynchronize(c.ctx, e),
				"StreamWaitEvent":  c.drv.StreamWaitEvent(s, e),
				"EventRecord":      c.drv.EventRecord(e, s),
				"EventQuery":       qerr,
			} {
				c.refused(err, driver.ErrInvalidHandle, call+" with an event that is "+name)
			}
			c.refused(xerr, driver.ErrInvalidArgument, "EventElapsed with an event that is "+name)
		}
		c.works()
	}},
	{"FreedMemory", 1, func(c *test) {
		s := c.stream(0)
		h, _ := c.pinned(4096)
		p, err := c.drv.Malloc(0, 4096)
		c.must(err)
		c.must(c.drv.Free(0, p))
		c.refused(c.drv.Copy(s, p, h, 64, driver.HostToDevice), driver.ErrInvalidArgument, "a copy to freed memory")
		c.refused(c.drv.Copy(s, h, p, 64, driver.DeviceToHost), driver.ErrInvalidArgument, "a copy from freed memory")
		c.refused(c.drv.Fill(s, p, 1, 64), driver.ErrInvalidArgument, "a fill of freed memory")
		if at, err := c.drv.Attributes(p); err == nil && at.Type != driver.Unmanaged {
			c.fail("freed memory is still there: %+v", at)
		}
		c.works()
	}},
	{"NoFunction", 1, func(c *test) {
		c.refused(c.drv.HostFunc(c.stream(0), "none", nil), driver.ErrInvalidArgument, "HostFunc without a function")
		c.works()
	}},
	{"RefusedLeavesNoTrace", 1, func(c *test) {
		// Work that a call refused is not enqueued, and is no error of the stream.
		data := pattern(4096, 1)
		p := c.put(0, data)
		s := c.stream(0)
		h, _ := c.pinned(64)
		c.refused(c.drv.Copy(s, p, h, 4096, driver.HostToDevice), driver.ErrOutOfBounds, "a source that is too short")
		c.refused(c.drv.Copy(s, p, h, 64, driver.DeviceToDevice), driver.ErrWrongKind, "host memory as device memory")
		c.refused(c.drv.Fill(s, p, 9, 5000), driver.ErrOutOfBounds, "a fill that is too long")
		c.sync(s)
		if !bytes.Equal(c.get(0, p, 4096), data) {
			c.fail("a call that was refused has changed memory")
		}
	}},
}

// works demands that the first device does its work.
func (c *test) works() {
	data := pattern(5000, 7)
	if !bytes.Equal(c.get(0, c.put(0, data), len(data)), data) {
		c.fail("the device doesn't copy right any more")
	}
	c.must(c.drv.Synchronize(c.ctx, 0))
}
