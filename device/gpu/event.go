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

// event finds an event, and returns it locked.
func (d *Driver) event(op string, h driver.EventHandle) (*event, error) {
	return base.Enter(d.events, op, h)
}

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
		return d.events.Add(&event{b: b, h: h}), nil
	}
	h := new(abi.Event)
	if err := b.call(op, "EventCreate", func() abi.Result { return b.Library.EventCreate(h, 0) }); err != nil {
		return 0, err
	}
	return d.events.Add(&event{b: b, h: *h, timing: timing}), nil
}

// EventDestroy is [driver.Events].EventDestroy.
func (d *Driver) EventDestroy(h driver.EventHandle) error {
	const op = "destroy event"
	e, err := d.event(op, h)
	if err != nil {
		return err
	}
	defer e.Unlock()
	e.Gone = true
	d.events.Drop(h, e)
	if !e.timing && !e.shared {
		e.b.retire(e.h) // waits for its record go on as they would
		return nil
	}
	return e.b.call(op, "EventDestroy", func() abi.Result { return e.b.Library.EventDestroy(e.h) })
}

// EventRecord is [driver.Events].EventRecord.
func (d *Driver) EventRecord(h driver.EventHandle, sh driver.StreamHandle) error {
	const op = "record event"
	s, e, err := base.EnterBoth(d.streams, d.events, op, sh, h)
	if err != nil {
		return err
	}
	defer s.Unlock()
	defer e.Unlock()
	if e.b != s.b {
		return driver.Errorf(driver.ErrWrongDevice, e.b.Name, op, "stream %#x is of %s", uintptr(sh), s.b.Name)
	}
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
	err = s.result(op, "EventRecord", func() abi.Result { return s.b.Library.EventRecord(e.h, s.h) })
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

// EventQuery is [driver.Events].EventQuery.
func (d *Driver) EventQuery(h driver.EventHandle) (bool, error) {
	const op = "query event"
	e, err := d.event(op, h)
	if err != nil {
		return false, err
	}
	defer e.Unlock()
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

// EventSynchronize is [driver.Events].EventSynchronize. A later record is another matter.
func (d *Driver) EventSynchronize(ctx context.Context, h driver.EventHandle) error {
	const op = "synchronize event"
	e, err := d.event(op, h)
	if err != nil {
		return err
	}
	err = e.outside(op)
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

// EventElapsed is [driver.Events].EventElapsed.
func (d *Driver) EventElapsed(start, end driver.EventHandle) (time.Duration, error) {
	const op = "elapsed time"
	var hs [2]abi.Event
	var first *base.Device
	var b *gpu
	for i, h := range []driver.EventHandle{start, end} {
		e, err := d.event(op, h)
		if err != nil {
			return 0, err
		}
		if err = e.b.CheckTimed(first, h, e.timing, e.recorded); err == nil {
			err = e.outside(op)
		}
		b, first, hs[i] = e.b, &e.b.Device, e.h
		e.Unlock()
		if err != nil {
			return 0, err
		}
	}
	ms := new(float32)
	err := b.call(op, "EventElapsedTime", func() abi.Result { return b.Library.EventElapsed(ms, hs[0], hs[1]) })
	return time.Duration(float64(*ms) * float64(time.Millisecond)), err
}
