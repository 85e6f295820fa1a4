package gpu

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
)

// event is one of the library's, and what it stands for.
type event struct {
	base.Entry[driver.EventHandle, *event]
	b      *gpu
	h      abi.Event
	timing bool
	shared bool // other processes can open it, or have made it
	opened bool // by another process

	base.Life
	recorded bool
	outcome  *outcome.Result
	capture  *capture // of the last record, which then means nothing outside
	foreign  bool     // the last record was in another owner's capture, likewise
}

// Device is that of [base.Front].
func (e *event) Device() *base.Device { return &e.b.Device }

// EventCreate is [driver.Events].EventCreate.
func (d *Driver) EventCreate(dev int, timing bool) (driver.EventHandle, error) {
	const op = "create event"
	b, err := d.gpu(op, dev)
	if err != nil {
		return 0, err
	}
	if !timing {
		h, err := b.event(op)
		if err != nil {
			return 0, err
		}
		return d.Events.Add(&event{b: b, h: h}), nil
	}
	h := new(abi.Event)
	if err := b.call(op, "EventCreate", func() abi.Result { return b.Library.EventCreate(h, 0) }); err != nil {
		return 0, err
	}
	return d.Events.Add(&event{b: b, h: *h, timing: timing}), nil
}

// Destroy is that of [base.Front].
func (e *event) Destroy(op string) error {
	if !e.timing && !e.shared {
		e.b.retire(e.h) // waits for its record go on as they would
		return nil
	}
	return e.b.call(op, "EventDestroy", func() abi.Result { return e.b.Library.EventDestroy(e.h) })
}

// Record is that of [base.Front].
func (e *event) Record(op string, s *stream) error {
	if err := s.permits(op); err != nil {
		return err
	}
	foreign := s.foreign()
	if e.shared && (s.capture != nil || foreign) {
		if s.capture != nil {
			s.capture.invalid.Store(true)
		}
		return driver.Errorf(driver.ErrCapture, e.b.Name, op, "an event of several processes is recorded in a capture")
	}
	err := s.result(op, "EventRecord", func() abi.Result { return s.b.Library.EventRecord(e.h, s.h) })
	if err != nil {
		return err
	}
	e.recorded, e.outcome, e.capture, e.foreign = true, nil, s.capture, foreign
	if s.capture == nil && !foreign {
		_ = s.broken() // forgets a result that is over
		e.outcome = s.outcome
	}
	return nil
}

// outside demands that the event's last record wasn't in a capture, which is invalid then.
func (e *event) outside(op string) error {
	if e.capture == nil && !e.foreign {
		return nil
	}
	if e.capture != nil && !e.capture.over.Load() {
		e.capture.invalid.Store(true)
	}
	return driver.Errorf(driver.ErrCapture, e.b.Name, op, "the event was recorded in a capture, and means nothing outside")
}

// Query is that of [base.Front].
func (e *event) Query(op string) (bool, error) {
	if err := e.outside(op); err != nil {
		return false, err
	}
	return e.query(op)
}

func (e *event) query(op string) (bool, error) {
	if !e.recorded && !e.shared {
		return true, nil
	}
	done, err := e.b.happened(op, e.h)
	if err != nil || !done {
		return false, err
	}
	if failed, _ := e.outcome.Failed(); failed != nil {
		return true, failed
	}
	return true, nil
}

// Synchronize is that of [base.Front]. A later record is another matter.
func (e *event) Synchronize(ctx context.Context, op string) error {
	err := e.outside(op)
	f := e.outcome
	e.Unlock()
	if err != nil {
		return err
	}
	done := func() (bool, error) {
		e.Lock()
		defer e.Unlock()
		if e.Gone || e.outcome != f || e.capture != nil || e.foreign {
			return true, nil
		}
		ok, err := e.query(op)
		if ok {
			err = nil
		}
		return ok, err
	}
	if err := e.b.Await(ctx, op, done, func() string { return "the event's work has not been done" }); err != nil {
		return err
	}
	if failed, _ := f.Failed(); failed != nil {
		return failed
	}
	return nil
}

// Times is that of [base.Front].
func (e *event) Times() (timing, recorded bool) { return e.timing, e.recorded }

// Moment is that of [base.Front]. The library keeps the event's time.
func (e *event) Moment(op string, _ driver.EventHandle) (*event, error) { return e, e.outside(op) }

// Elapsed is that of [base.Front].
func (e *event) Elapsed(op string, end *event) (time.Duration, error) {
	ms := new(float32)
	err := e.b.call(op, "EventElapsedTime", func() abi.Result { return e.b.Library.EventElapsed(ms, e.h, end.h) })
	return time.Duration(float64(*ms) * float64(time.Millisecond)), err
}
