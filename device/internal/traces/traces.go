package traces

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// Slot is where a driver has its trace, if there is one.
type Slot struct{ atomic.Pointer[Trace] }

// Start is [driver.Tracer].TraceStart of the driver with the name.
func (s *Slot) Start(name string) (*Trace, error) {
	tr := &Trace{Begin: time.Now()}
	if !s.CompareAndSwap(nil, tr) {
		return nil, driver.Errorf(driver.ErrInvalidArgument, name, "start trace", "there is a trace already")
	}
	return tr, nil
}

// Stop is [driver.Tracer].TraceStop.
func (s *Slot) Stop(name string) ([]driver.Activity, error) {
	tr := s.Swap(nil)
	if tr == nil {
		return nil, driver.Errorf(driver.ErrInvalidArgument, name, "stop trace", "there is no trace")
	}
	return tr.end(), nil
}

// Trace keeps the activities of a time. Its methods may be called at the same time.
type Trace struct {
	Begin time.Time

	mu    sync.Mutex
	over  bool
	last  uint64            // correlation
	list  []driver.Activity // whose times are known
	going []command         // in the order of their calls
	done  []command
}

// command is work whose times the device keeps.
type command struct {
	Work
	times Times
}

// Times are those that a device keeps of a command. A trace calls the methods of one after the other.
type Times interface {
	// Over reports whether the command has ended, and if it has failed. If it has ended the trace doesn't ask again.
	Over() (over, failed bool)
	// Span is when the command ran, of one that is over, at the end of the trace. ok is false if the device doesn't tell.
	Span() (start, end time.Time, ok bool)
	// Free gives back what keeps the times, before the command has ended.
	Free()
}

// Work is what a call has enqueued. The zero Work belongs to no trace.
type Work struct {
	tr       *Trace
	activity driver.Activity // without times
	called   time.Time
}

// mostGoing is how many commands a trace keeps before it asks which of them are over: their times take memory.
const mostGoing = 1024

// Call notes a call of the host, and returns the work that it enqueues, without times.
func (tr *Trace) Call(op string, work driver.Activity, begin time.Time) Work {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.last++
	work.Correlation = tr.last
	call := work
	call.Kind, call.Name, call.Bytes, call.Start, call.End = driver.ActivityRuntime, op, 0, begin, time.Now()
	tr.add(call)
	return Work{tr, work, begin}
}

// Command keeps work that the device times.
func (tr *Trace) Command(w Work, t Times) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.over {
		t.Free()
		return
	}
	if len(tr.going) >= mostGoing {
		tr.collect()
	}
	tr.going = append(tr.going, command{w, t})
}

// Of is a part of the work, which is another activity.
func (w Work) Of(kind driver.ActivityKind, name string, bytes int) *Work {
	w.activity.Kind, w.activity.Name, w.activity.Bytes = kind, name, bytes
	return &w
}

// Ran notes that work of the host began at a time, and has just ended. Nil is of no trace.
func (w *Work) Ran(begin time.Time, failed bool) {
	if w == nil || w.tr == nil {
		return
	}
	a := w.activity
	a.Start, a.End, a.Failed = begin, time.Now(), failed
	w.tr.mu.Lock()
	defer w.tr.mu.Unlock()
	w.tr.add(a)
}

// add is within mu.
func (tr *Trace) add(a driver.Activity) {
	if !tr.over {
		tr.list = append(tr.list, a)
	}
}

// collect takes the commands that are over. It's within mu.
func (tr *Trace) collect() {
	tr.going = slices.DeleteFunc(tr.going, func(c command) bool {
		over, failed := c.times.Over()
		if over {
			c.activity.Failed = failed
			tr.done = append(tr.done, c)
		}
		return over
	})
}

// end returns the activities by start time. A command without times has those of its call.
func (tr *Trace) end() []driver.Activity {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.collect()
	tr.over = true
	for _, c := range tr.going {
		c.times.Free()
	}
	for _, c := range tr.done {
		a := c.activity
		var ok bool
		if a.Start, a.End, ok = c.times.Span(); !ok {
			a.Start, a.End = c.called, c.called
		}
		tr.list = append(tr.list, a)
	}
	slices.SortStableFunc(tr.list, func(a, b driver.Activity) int { return a.Start.Compare(b.Start) })
	return tr.list
}

// IDs are the external ones of a stream, the innermost last. The stream's lock guards them.
type IDs []uint64

// Push is [driver.Tracer].TracePush.
func (x *IDs) Push(id uint64) { *x = append(*x, id) }

// Pop is [driver.Tracer].TracePop of a stream of the device with the name.
func (x *IDs) Pop(on string, h driver.StreamHandle) (uint64, error) {
	n := len(*x) - 1
	if n < 0 {
		return 0, driver.Errorf(driver.ErrInvalidArgument, on, "pop external ID", "stream %#x has none", uintptr(h))
	}
	id := (*x)[n]
	*x = (*x)[:n]
	return id, nil
}

// Innermost is the last one; 0 if there is none.
func (x IDs) Innermost() uint64 {
	if len(x) == 0 {
		return 0
	}
	return x[len(x)-1]
}
