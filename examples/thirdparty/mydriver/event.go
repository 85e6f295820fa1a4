package mydriver

import (
	"context"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// event is a point in the order of a stream, as last recorded.
type event struct {
	dev    int
	timing bool
	last   *record // nil: never recorded
}

// record is one of an event's records: waits are for that one, whatever is recorded later.
type record struct {
	done chan struct{}
	at   time.Time // valid once done, as is err
	err  error     // of the work that it stands for
}

// happened reports whether a record is done. A new event stands for nothing.
func (r *record) happened() bool {
	if r == nil {
		return true
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// event finds an event, and its last record.
func (d *Driver) event(op string, h driver.EventHandle) (*event, *record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.events[h]; e != nil {
		return e, e.last, nil
	}
	return nil, nil, driver.Errorf(driver.ErrInvalidHandle, Name, op, "there is no event %#x", uintptr(h))
}

// EventCreate implements driver.Events.
func (d *Driver) EventCreate(dev int, timing bool) (driver.EventHandle, error) {
	if err := d.check("create event", dev); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h := driver.EventHandle(d.next())
	d.events[h] = &event{dev: dev, timing: timing}
	return h, nil
}

// EventDestroy implements driver.Events.
func (d *Driver) EventDestroy(h driver.EventHandle) error {
	_, _, err := d.event("destroy event", h)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.events, h)
	return err
}

// EventRecord implements driver.Events.
func (d *Driver) EventRecord(h driver.EventHandle, sh driver.StreamHandle) error {
	e, _, err := d.event("record event", h)
	if err != nil {
		return err
	}
	s, err := d.stream("record event", sh)
	if err != nil {
		return err
	}
	if e.dev != s.dev {
		return driver.Errorf(driver.ErrWrongDevice, s.device(), "record event", "the event is of %s", name(e.dev))
	}
	r := &record{done: make(chan struct{})}
	d.mu.Lock()
	e.last = r
	d.mu.Unlock()
	s.enqueue(work{name: "record event", always: true, run: func() error {
		s.mu.Lock()
		r.at, r.err = time.Now(), s.err
		s.mu.Unlock()
		close(r.done)
		return nil
	}})
	return nil
}

// EventQuery implements driver.Events.
func (d *Driver) EventQuery(h driver.EventHandle) (bool, error) {
	_, r, err := d.event("query event", h)
	if err != nil || r == nil || !r.happened() {
		return err == nil && r == nil, err
	}
	return true, r.err
}

// EventSynchronize implements driver.Events.
func (d *Driver) EventSynchronize(ctx context.Context, h driver.EventHandle) error {
	e, r, err := d.event("synchronize event", h)
	if err != nil || r == nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ended(ctx, name(e.dev), "synchronize event", "what it stands for is still to come")
	}
}

// EventElapsed implements driver.Events.
func (d *Driver) EventElapsed(start, end driver.EventHandle) (time.Duration, error) {
	const op = "elapsed time"
	a, from, err := d.event(op, start)
	if err != nil {
		return 0, err
	}
	b, to, err := d.event(op, end)
	if err != nil {
		return 0, err
	}
	switch {
	case a.dev != b.dev:
		return 0, driver.Errorf(driver.ErrWrongDevice, Name, op, "the events are of %s and %s", name(a.dev), name(b.dev))
	case !a.timing || !b.timing || from == nil || to == nil:
		return 0, driver.Errorf(driver.ErrInvalidArgument, name(a.dev), op, "an event without timing, or never recorded")
	case !from.happened() || !to.happened():
		return 0, driver.Errorf(driver.ErrNotReady, name(a.dev), op, "an event is still to come")
	}
	return to.at.Sub(from.at), nil
}
