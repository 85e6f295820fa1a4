//go:build linux

package gputest

import (
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// streamTable fills in the functions of streams.
func (l *Library) streamTable(t *abi.Table) {
	d := l.driver
	t.StreamCreate = func(s *abi.Stream, flags uint32, priority int32) abi.Result {
		return l.on(func(dev int) abi.Result {
			if flags != abi.StreamNonBlocking || priority > 0 {
				return abi.InvalidValue
			}
			h, err := d.StreamCreate(dev, int(-priority))
			return give(s, h, err)
		})
	}
	t.StreamDestroy = func(s abi.Stream) abi.Result { return result(d.StreamDestroy(driver.StreamHandle(s))) }
	t.StreamQuery = func(s abi.Stream) abi.Result { return done(d.StreamQuery(driver.StreamHandle(s))) }
	t.StreamWait = func(s abi.Stream, e abi.Event, _ uint32) abi.Result {
		return result(d.StreamWaitEvent(driver.StreamHandle(s), driver.EventHandle(e)))
	}
	t.HostFunc = func(s abi.Stream, f, arg uintptr) abi.Result {
		return result(d.HostFunc(driver.StreamHandle(s), "host function", func() error {
			if !l.opts.Parallel {
				l.callee.Lock()
				defer l.callee.Unlock()
			}
			dl.Func(f).Call(arg)
			return nil
		}))
	}
	t.WaitValue = l.waitValue
}

// eventTable fills in the functions of events.
func (l *Library) eventTable(t *abi.Table) {
	d := l.driver
	t.EventCreate = func(e *abi.Event, flags uint32) abi.Result {
		return l.on(func(dev int) abi.Result {
			if flags&abi.EventInterprocess != 0 {
				if flags&abi.EventDisableTiming == 0 {
					return abi.InvalidValue
				}
				h, err := d.IPCEventCreate(dev)
				return give(e, h, err)
			}
			h, err := d.EventCreate(dev, flags&abi.EventDisableTiming == 0)
			return give(e, h, err)
		})
	}
	t.EventDestroy = func(e abi.Event) abi.Result { return result(d.EventDestroy(driver.EventHandle(e))) }
	t.EventRecord = func(e abi.Event, s abi.Stream) abi.Result {
		return result(d.EventRecord(driver.EventHandle(e), driver.StreamHandle(s)))
	}
	t.EventQuery = func(e abi.Event) abi.Result { return done(d.EventQuery(driver.EventHandle(e))) }
	t.EventElapsed = func(ms *float32, start, end abi.Event) abi.Result {
		x, err := d.EventElapsed(driver.EventHandle(start), driver.EventHandle(end))
		*ms = float32(float64(x) / float64(time.Millisecond))
		return result(err)
	}
}
