package opencl

import (
	"context"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/internal/outcome"
)

// event is what stands for a point in the order of a stream: its last record.
type event struct {
	b      *dev
	timing bool

	mu       sync.Mutex
	gone     bool
	recorded bool
	ticket   *ticket // nil: of no work
	outcome  *outcome.Result
	capture  *capture // of the last record, which then means nothing outside
	nodes    []int    // and what it stands for there
}

// event finds an event, and returns it locked.
func (d *Driver) event(op string, h driver.EventHandle) (*event, error) {
	d.mu.RLock()
	e := d.events[h]
	d.mu.RUnlock()
	if e != nil {
		e.mu.Lock()
		if !e.gone {
			return e, nil
		}
		e.mu.Unlock()
	}
	return nil, driver.Errorf(driver.ErrInvalidHandle, name, op, "no event has the handle %#x", uintptr(h))
}

// EventCreate is [driver.Events].EventCreate.
func (d *Driver) EventCreate(dev int, timing bool) (driver.EventHandle, error) {
	b, err := d.dev("create event", dev)
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h := driver.EventHandle(d.handle())
	d.events[h] = &event{b: b, timing: timing}
	return h, nil
}

// EventDestroy is [driver.Events].EventDestroy.
func (d *Driver) EventDestroy(h driver.EventHandle) error {
	e, err := d.event("destroy event", h)
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	e.gone = true
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.events, h)
	return nil
}

// EventRecord is [driver.Events].EventRecord.
func (d *Driver) EventRecord(h driver.EventHandle, sh driver.StreamHandle) error {
	const op = "record event"
	s, err := d.stream(op, sh)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	e, err := d.event(op, h)
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	if e.b != s.b {
		return driver.Errorf(driver.ErrWrongDevice, e.b.name, op, "stream %#x is of %s", uintptr(sh), s.b.name)
	}
	if captured, err := s.captureRecord(op, e); captured || err != nil {
		return err
	}
	var t *ticket
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
	return driver.Errorf(driver.ErrCapture, e.b.name, op, "the event was recorded in a capture, and means nothing outside")
}

// EventQuery is [driver.Events].EventQuery.
func (d *Driver) EventQuery(h driver.EventHandle) (bool, error) {
	const op = "query event"
	e, err := d.event(op, h)
	if err != nil {
		return false, err
	}
	defer e.mu.Unlock()
	if err := d.outside(op, e); err != nil {
		return false, err
	}
	if !e.ticket.passed() {
		return false, e.b.broken()
	}
	return true, e.carried()
}

// carried is the error of the work that the event stands for. It's locked.
func (e *event) carried() error {
	if err := e.b.broken(); err != nil {
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

// EventSynchronize is [driver.Events].EventSynchronize. A later record is another matter.
func (d *Driver) EventSynchronize(ctx context.Context, h driver.EventHandle) error {
	const op = "synchronize event"
	e, err := d.event(op, h)
	if err != nil {
		return err
	}
	err = d.outside(op, e)
	was := &event{b: e.b, ticket: e.ticket, outcome: e.outcome}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	at := func() string { return "the event's work has not been done" }
	if err := was.ticket.await(ctx, op, at); err != nil {
		return err
	}
	return was.carried()
}

// EventElapsed is [driver.Events].EventElapsed.
func (d *Driver) EventElapsed(start, end driver.EventHandle) (time.Duration, error) {
	const op = "elapsed time"
	var at [2]*ticket
	var b *dev
	for i, h := range []driver.EventHandle{start, end} {
		e, err := d.event(op, h)
		if err != nil {
			return 0, err
		}
		switch {
		case b != nil && e.b != b:
			err = driver.Errorf(driver.ErrWrongDevice, b.name, op, "the other event is of %s", e.b.name)
		case !e.timing:
			err = driver.Errorf(driver.ErrInvalidArgument, e.b.name, op, "event %#x keeps no time", uintptr(h))
		case !e.recorded:
			err = driver.Errorf(driver.ErrInvalidArgument, e.b.name, op, "event %#x was never recorded", uintptr(h))
		default:
			if err = d.outside(op, e); err == nil && !e.ticket.passed() {
				err = driver.Errorf(driver.ErrNotReady, e.b.name, op, "the work of event %#x is not done", uintptr(h))
			}
		}
		b, at[i] = e.b, e.ticket
		e.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	took, err := at[0].elapsed(at[1])
	if err != nil {
		return 0, driver.Errorf(driver.ErrInternal, b.name, op, "%w", err)
	}
	return took, nil
}
