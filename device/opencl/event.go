package opencl

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/base"
	"github.com/chorus-comms/chorus/device/internal/outcome"
)

// event is what stands for a point in the order of a stream: its last record.
type event struct {
	base.Entry[driver.EventHandle, *event]
	b      *dev
	timing bool

	base.Life
	recorded bool
	ticket   *ticket // nil: of no work
	outcome  *outcome.Result
	capture  *capture // of the last record, which then means nothing outside
	nodes    []int    // and what it stands for there
}

// Device is that of [base.Front].
func (e *event) Device() *base.Device { return &e.b.Device }

// EventCreate is [driver.Events].EventCreate.
func (d *Driver) EventCreate(dev int, timing bool) (driver.EventHandle, error) {
	b, err := d.dev("create event", dev)
	if err != nil {
		return 0, err
	}
	return d.Events.Add(&event{b: b, timing: timing}), nil
}

// Destroy is that of [base.Front].
func (e *event) Destroy(string) error { return nil }

// Record is that of [base.Front].
func (e *event) Record(op string, s *stream) error {
	if captured, err := s.captureRecord(op, e); captured || err != nil {
		return err
	}
	var t *ticket
	var err error
	if e.timing {
		if err = s.profile(op); err == nil {
			t, err = s.newTicket(op, true)
		}
	} else {
		t, err = s.point(op)
	}
	if err != nil {
		return err
	}
	_ = s.broken() // forgets a result that is over
	e.recorded, e.ticket, e.outcome, e.capture, e.nodes = true, t, s.outcome, nil, nil
	return nil
}

// outside demands that the event's last record wasn't in a capture, which is invalid then. The event is locked.
func (d *Driver) outside(op string, e *event) error {
	if e.capture == nil {
		return nil
	}
	d.capturing.Lock()
	defer d.capturing.Unlock()
	e.capture.spoil("the host asked for an event of it")
	return driver.Errorf(driver.ErrCapture, e.b.Name, op, "the event was recorded in a capture, and means nothing outside")
}

// Query is that of [base.Front].
func (e *event) Query(op string) (bool, error) {
	if err := e.b.d.outside(op, e); err != nil {
		return false, err
	}
	if !e.ticket.Over() {
		return false, e.b.Broken()
	}
	return true, e.carried()
}

// carried is the error of the work that the event stands for. It's locked.
func (e *event) carried() error {
	if err := e.b.Broken(); err != nil {
		return err
	}
	if err, _ := e.outcome.Failed(); err != nil {
		return err
	}
	if err := e.ticket.failure(); err != nil {
		return err
	}
	return nil
}

// Synchronize is that of [base.Front]. A later record is another matter.
func (e *event) Synchronize(ctx context.Context, op string) error {
	err := e.b.d.outside(op, e)
	was := &event{b: e.b, ticket: e.ticket, outcome: e.outcome}
	e.Unlock()
	if err != nil {
		return err
	}
	at := func() string { return "the event's work has not been done" }
	if err := was.ticket.await(ctx, op, at); err != nil {
		return err
	}
	return was.carried()
}

// Times is that of [base.Front].
func (e *event) Times() (timing, recorded bool) { return e.timing, e.recorded }

// Moment is that of [base.Front].
func (e *event) Moment(op string, h driver.EventHandle) (*event, error) {
	err := e.b.d.outside(op, e)
	if err == nil && !e.ticket.Over() {
		err = driver.Errorf(driver.ErrNotReady, e.b.Name, op, "the work of event %#x is not done", uintptr(h))
	}
	return &event{b: e.b, ticket: e.ticket}, err
}

// Elapsed is that of [base.Front].
func (e *event) Elapsed(op string, end *event) (time.Duration, error) {
	took, err := e.ticket.elapsed(end.ticket)
	if err != nil {
		return 0, driver.Errorf(driver.ErrInternal, e.b.Name, op, "%w", err)
	}
	return took, nil
}
