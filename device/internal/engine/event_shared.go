package engine

import (
	"context"

	"github.com/chorus-comms/chorus/device/driver"
)

// Shared is the part of an event that other processes see. Records are numbered from 1 on, by all processes together.
// An engine calls nothing after Close but Reach for what it has recorded, and what Await has returned.
type Shared interface {
	// Record takes the number of a new record. An error refuses it.
	Record() (n uint64, err error)

	// Reach says that a record of this process was reached, and what its stream carried.
	Reach(n uint64, failed *driver.WorkError)

	// Last is the number of the last record of any process, 0 if there was none.
	Last() uint64

	// Reached says whether a record was reached, and what its stream carried.
	Reached(n uint64) (bool, *driver.WorkError)

	// Await returns a function that waits until another process's record is reached, or the process has ended, and returns
	// what its stream carried. It's called once.
	Await(n uint64) func() *driver.WorkError

	Close()
}

// AddEvent makes an event of a device that other processes see, too.
func (e *Engine) AddEvent(op string, index int, sh Shared) (driver.EventHandle, error) {
	d, err := e.dev(op, index)
	if err != nil {
		return 0, err
	}
	return e.events.Add(&event{dev: d, shared: sh}), nil
}

// SharedEvent returns what other processes see of an event, nil if it's an ordinary one.
func (e *Engine) SharedEvent(op string, h driver.EventHandle) (Shared, error) {
	v, err := e.events.Find(op, h)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shared, nil
}

func (v *event) isShared() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shared != nil
}

func (v *event) unshare() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shared != nil {
		v.shared.Close()
		v.shared = nil
	}
}

// share makes a point the event's next record for all processes. The lock is held.
func (v *event) share(p *point) error {
	sh := v.shared
	n, err := sh.Record()
	if err != nil {
		return err
	}
	v.number = n
	p.then = func() { sh.Reach(n, p.err) }
	return nil
}

// follow lets the event stand for its last record, if that is another process's. The lock is held.
func (v *event) follow() {
	n := v.shared.Last()
	if n == v.number {
		return
	}
	p, sh := new(point), v.shared
	v.last, v.number = p, n
	if done, failed := sh.Reached(n); done {
		p.reach(failed)
		return
	}
	wait := sh.Await(n)
	go func() { p.reach(wait()) }()
}

// awaitOther waits for a point that another process recorded.
func (p *point) awaitOther(ctx context.Context, name string) error {
	if p.isReached() {
		return carried(p.err)
	}
	select {
	case <-p.done():
		return carried(p.err)
	case <-ctx.Done():
		return gaveUp(ctx, name, "synchronize event", "it's another process's record that is still to come")
	}
}
