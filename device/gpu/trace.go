package gpu

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/traces"
)

// TraceStart is [driver.Tracer].TraceStart. Work is timed by events before and after it.
func (d *Driver) TraceStart() error {
	_, err := d.trace.Start(d.family.Name)
	return err
}

// TraceStop is [driver.Tracer].TraceStop.
func (d *Driver) TraceStop() ([]driver.Activity, error) {
	list, err := d.trace.Stop(d.family.Name)
	for _, b := range d.gpus {
		b.base.end(b)
	}
	return list, err
}

// calls notes a call that enqueues work on the stream, which is locked.
func (s *stream) calls(tr *traces.Trace, op string, a driver.Activity, begin time.Time) traces.Work {
	a.Device, a.Stream, a.External = s.b.Index, driver.StreamHandle(s.h), s.External()
	return tr.Call(op, a, begin)
}

// mark is the point before work that a trace times; of no trace it's zero.
type mark struct {
	tr    *traces.Trace
	begin time.Time
	start abi.Event
}

// before marks the point before the stream's next work, if there is a trace. Work that is captured isn't timed: the run
// of its graph is. The stream is locked.
func (d *Driver) before(s *stream) (m mark) {
	tr := d.trace.Load()
	if tr == nil || s.recording() {
		return m
	}
	s.b.base.need(s.b, tr)
	m.begin = time.Now()
	if e, err := s.b.timedEvent(s); err == nil { // what can't be timed isn't in the trace
		m.tr, m.start = tr, e
	}
	return m
}

// timedEvent records a new event with a time.
func (b *gpu) timedEvent(s *stream) (abi.Event, error) {
	const op = "trace"
	e := new(abi.Event)
	if err := b.call(op, "EventCreate", func() abi.Result { return b.Library.EventCreate(e, 0) }); err != nil {
		return 0, err
	}
	err := b.call(op, "EventRecord", func() abi.Result { return b.Library.EventRecord(*e, s.h) })
	if err != nil {
		b.dropTimed(*e)
	}
	return *e, err
}

func (b *gpu) dropTimed(e abi.Event) {
	_ = b.call("trace", "EventDestroy", func() abi.Result { return b.Library.EventDestroy(e) })
}

// after ends what before has begun: the work of a call, unless that has failed. The stream is locked.
func (m *mark) after(s *stream, op string, a driver.Activity, err error) {
	if m.tr == nil {
		return
	}
	b := s.b
	end := abi.Event(0)
	if err == nil {
		end, err = b.timedEvent(s)
	}
	if err != nil {
		b.dropTimed(m.start)
		return
	}
	m.tr.Command(s.calls(m.tr, op, a, m.begin), &times{b: b, tr: m.tr, start: m.start, end: end})
}

// times is [traces.Times] of work between two events.
type times struct {
	b          *gpu
	tr         *traces.Trace
	start, end abi.Event
	at         time.Time
	took       time.Duration
	known      bool
}

// Over implements [traces.Times].
func (x *times) Over() (over, failed bool) {
	b := x.b
	switch r := b.query(func() abi.Result { return b.EventQuery(x.end) }); {
	case r == abi.NotReady:
		return false, false
	case r != abi.Success:
		x.Free()
		return true, true
	}
	if x.took, x.known = b.elapsed(x.start, x.end); x.known {
		x.at, x.known = b.base.place(b, x.tr, x.start)
	}
	x.Free()
	return true, false
}

// Span implements [traces.Times].
func (x *times) Span() (start, end time.Time, ok bool) { return x.at, x.at.Add(x.took), x.known }

// Free implements [traces.Times].
func (x *times) Free() {
	if !x.b.base.keeps(x.start) {
		x.b.dropTimed(x.start)
	}
	x.b.dropTimed(x.end)
}

// elapsed is the time between two events that have happened.
func (b *gpu) elapsed(start, end abi.Event) (time.Duration, bool) {
	ms := new(float32)
	err := b.call("trace", "EventElapsedTime", func() abi.Result { return b.Library.EventElapsed(ms, start, end) })
	return time.Duration(float64(*ms) * float64(time.Millisecond)), err == nil
}

// anchor is an event whose time the host knows, so that the library's times between events become times. The library
// tells them as numbers of 32 bits: the base moves on, as their resolution is a microsecond after some seconds.
type anchor struct {
	mu sync.Mutex
	tr *traces.Trace // to which it belongs
	e  abi.Event     // 0: none
	at time.Time
}

// mostApart is how far an event may be from the base.
const mostApart = time.Second

// need makes the base of a trace, before its first work.
func (x *anchor) need(b *gpu, tr *traces.Trace) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tr != tr {
		x.drop(b)
		x.tr = tr
		x.e, x.at = b.present()
	}
}

// place is the host's time at an event, which becomes the base if it's far from the last one.
func (x *anchor) place(b *gpu, tr *traces.Trace, e abi.Event) (time.Time, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tr != tr || x.e == 0 {
		return time.Time{}, false
	}
	after, ok := b.elapsed(x.e, e)
	at := x.at.Add(after)
	if ok && after > mostApart {
		x.drop(b)
		x.e, x.at = e, at
	}
	return at, ok
}

// keeps reports whether an event is the base.
func (x *anchor) keeps(e abi.Event) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.e == e
}

// drop is within mu.
func (x *anchor) drop(b *gpu) {
	if x.e != 0 {
		b.dropTimed(x.e)
		x.e = 0
	}
}

// end gives the base back.
func (x *anchor) end(b *gpu) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(b)
	x.tr = nil
}

// presentTime bounds how long present waits for an event, which the GPU's queues may hold back.
const presentTime = 10 * time.Millisecond

// presentTries is how many events present records. The host may be interrupted between one and its time.
const presentTries = 5

// present is an event that has just happened, on an idle stream of its own, and the time; 0: there can't be one. Of some
// events it's the one whose time is known best.
func (b *gpu) present() (abi.Event, time.Time) {
	const op = "trace"
	s := &stream{b: b}
	make := func() abi.Result { return b.StreamCreate(&s.h, abi.StreamNonBlocking, 0) }
	if b.call(op, "StreamCreateWithPriority", make) != nil {
		return 0, time.Time{}
	}
	defer b.call(op, "StreamDestroy", func() abi.Result { return b.StreamDestroy(s.h) })
	var best abi.Event
	var at time.Time
	shortest := time.Duration(math.MaxInt64)
	for range presentTries {
		begin := time.Now()
		e, err := b.timedEvent(s)
		if err != nil {
			break
		}
		for b.query(func() abi.Result { return b.EventQuery(e) }) != abi.Success && time.Since(begin) < presentTime {
			runtime.Gosched()
		}
		now := time.Now()
		if took := now.Sub(begin); took < shortest {
			best, e = e, best
			at, shortest = now, took
		}
		if e != 0 {
			b.dropTimed(e)
		}
		if now.Sub(begin) >= presentTime {
			break
		}
	}
	return best, at
}
