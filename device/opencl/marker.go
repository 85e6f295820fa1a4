package opencl

import (
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl/abi"
	"github.com/chorus-comms/chorus/internal/dl"
)

// ticket is a point in the order of a stream: an event of the library behind all that was enqueued before. A nil ticket
// is of no work.
type ticket struct {
	s     *stream
	keeps bool // the event is needed when its work is done: it has the time
	brief bool // the stream had brief work alone: see [burden]

	mu     sync.Mutex
	e      abi.Event
	done   bool
	err    *driver.WorkError // the work before it has failed
	joined chan struct{}     // closed when a thread's wait in the library is over; nil: there has been none
}

// newTicket enqueues a marker. The stream is locked.
func (s *stream) newTicket(op string, keeps bool) (*ticket, error) {
	if err := s.behind(op); err != nil {
		return nil, err
	}
	e := new(abi.Event)
	if err := s.b.result(op, "clEnqueueMarkerWithWaitList", s.b.Marker(s.q, 0, nil, e)); err != nil {
		return nil, err
	}
	t := &ticket{s: s, e: *e, keeps: keeps, brief: !s.burden.heavy}
	runtime.SetFinalizer(t, func(t *ticket) { t.release() })
	return t, s.b.result(op, "clFlush", s.b.Flush(s.q))
}

func (t *ticket) release() {
	if t.e != 0 {
		t.s.b.EventFree(t.e)
		t.e = 0
	}
}

// Over reports whether the work is done. On a device that has failed it is.
func (t *ticket) Over() bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return true
	}
	b, status := t.s.b, new(int32)
	r := b.EventInfo(t.e, abi.EventStatus, 4, unsafe.Pointer(status), nil)
	if r == abi.Success && *status > 0 {
		return false
	}
	if r == abi.Success {
		r = abi.Result(*status)
	}
	t.done = true
	if r != abi.Success {
		t.err = t.s.failure("work", b.failed("a command", r))
		t.s.broke.CompareAndSwap(nil, t.err)
		_ = b.result("wait", "a command", r)
	}
	if !t.keeps {
		t.release()
	}
	return true
}

// before makes a stream wait for the ticket. The stream is locked.
func (t *ticket) before(op string, s *stream) error {
	if t.Over() {
		return nil
	}
	if err := s.behind(op); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return nil
	}
	if t.s.b.space == s.b.space {
		e := dl.Heap(&[1]abi.Event{t.e})
		s.enqueues(0)
		r := s.b.Barrier(s.q, 1, &e[0], nil)
		if err := s.b.result(op, "clEnqueueBarrierWithWaitList", r); err != nil {
			return err
		}
		return s.b.result(op, "clFlush", s.b.Flush(s.q))
	}
	let, err := s.hold(op) // events are good in their own context only
	if err != nil {
		return err
	}
	return t.s.b.when(t.e, let)
}

// elapsed is the time on the device from one ticket to another.
func (t *ticket) elapsed(end *ticket) (time.Duration, error) {
	var at [2]uint64
	for i, x := range []*ticket{t, end} {
		v, err := value[uint64](x.s.b.Library, "clGetEventProfilingInfo", x.s.b.EventTime, x.e, abi.ProfileEnd)
		if err != nil {
			return 0, err
		}
		at[i] = v
	}
	return time.Duration(int64(at[1] - at[0])), nil
}

// failure is what the work has failed with; nil if it hasn't, so far.
func (t *ticket) failure() *driver.WorkError {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
