package opencl

import (
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/traces"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// TraceStart is [driver.Tracer].TraceStart. A queue keeps times from its first command in a trace on.
func (d *Driver) TraceStart() error {
	tr, err := d.trace.Start(name)
	if err == nil {
		for _, b := range d.devs {
			b.clock.reset(tr.Begin)
		}
	}
	return err
}

// TraceStop is [driver.Tracer].TraceStop.
func (d *Driver) TraceStop() ([]driver.Activity, error) { return d.trace.Stop(name) }

// traced is the trace that the stream's next command belongs to, nil if there is none. The stream's queue keeps times
// then. It's locked.
func (s *stream) traced(op string) (*traces.Trace, error) {
	tr := s.b.d.trace.Load()
	if tr == nil {
		return nil, nil
	}
	return tr, s.profile(op)
}

// calls notes a call that enqueues work on the stream, which is locked.
func (s *stream) calls(tr *traces.Trace, op string, a driver.Activity, begin time.Time) traces.Work {
	a.Device, a.Stream, a.External = s.b.Index, s.h, s.External()
	return tr.Call(op, a, begin)
}

// timed has f enqueue a command, and keeps its event for the trace. The stream is locked.
func (s *stream) timed(tr *traces.Trace, op string, c *command, f func(e *abi.Event) abi.Result) error {
	e, begin := dl.Heap(new(abi.Event)), time.Now()
	if err := s.b.result(op, c.call, f(e)); err != nil {
		return err
	}
	w := s.calls(tr, op, driver.Activity{Kind: c.kind, Name: c.name, Bytes: c.bytes}, begin)
	if *e != 0 { // else a library of functions has refused
		tr.Command(w, &times{b: s.b, e: *e, called: begin})
	}
	return nil
}

// times is [traces.Times] of a command.
type times struct {
	b          *dev
	e          abi.Event
	called     time.Time
	start, end time.Duration // on the device's clock; 0: it has told none
}

// Over implements [traces.Times].
func (x *times) Over() (over, failed bool) {
	status := new(int32)
	r := x.b.EventInfo(x.e, abi.EventStatus, 4, unsafe.Pointer(status), nil)
	if r == abi.Success && *status > 0 {
		return false, false
	}
	queued, start, end := x.at(abi.ProfileQueued), x.at(abi.ProfileStart), x.at(abi.ProfileEnd)
	if start > 0 && end >= start {
		x.start, x.end = start, end
	}
	if queued > 0 && queued <= start {
		x.b.clock.seen(queued, x.called)
	}
	x.Free()
	return true, r != abi.Success || *status < 0
}

// at is a point in the life of the command, which is over; 0 if the library doesn't tell.
func (x *times) at(what uint32) time.Duration {
	ns, err := value[uint64](x.b.Library, "clGetEventProfilingInfo", x.b.EventTime, x.e, what)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}

// Span implements [traces.Times].
func (x *times) Span() (start, end time.Time, ok bool) {
	if x.end == 0 || !x.b.clock.told() {
		return start, end, false
	}
	return x.b.clock.host(x.start), x.b.clock.host(x.end), true
}

// Free implements [traces.Times].
func (x *times) Free() { x.b.EventFree(x.e) }

// clock relates a device's clock to the host's. The library says when it was called, on the device's clock. That's after
// the call began: so the device's clock is behind by at least the difference. It's hardly behind by more than the
// largest difference of many calls.
type clock struct {
	mu     sync.Mutex
	begin  time.Time
	known  bool
	behind time.Duration // begin
}

func (c *clock) reset(begin time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin, c.known, c.behind = begin, false, 0
}

// seen takes note of a call that began at a time, and came to the library at the device's time.
func (c *clock) seen(device time.Duration, called time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if behind := called.Sub(c.begin) - device; !c.known || behind > c.behind {
		c.known, c.behind = true, behind
	}
}

// told reports whether the library has said when it was called.
func (c *clock) told() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// host is the host's time at one of the device's.
func (c *clock) host(device time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begin.Add(device + c.behind)
}
