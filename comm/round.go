package comm

import (
	"context"
	"errors"
)

// round is transfers that are posted and completed together, within the gate.
type round struct {
	c       *Comm
	calls   []*call
	work    *Work // nil if it isn't asynchronous
	posted  int   // so many of them, from the first
	awaited int   // so many of these
}

// current is the transfer that was posted, or completed, last.
func (r *round) current() *call {
	for _, o := range r.calls {
		if o.running.hook != nil {
			return o
		}
	}
	return r.calls[0]
}

// post posts the transfers, up to the first that fails.
func (r *round) post(async bool) error {
	for _, o := range r.calls {
		o.record = r.c.rec.Issue(&o.Op, async, false)
		if err := r.c.post(o); err != nil {
			return err
		}
		r.posted++
	}
	return nil
}

// await completes those that were posted.
func (r *round) await() (err error) {
	for r.awaited < r.posted {
		o := r.calls[r.awaited]
		r.awaited++
		err = errors.Join(err, r.c.await(o))
	}
	return single(err)
}

// abandon completes those that are still under way when a hook has panicked at another. The communicator is broken.
func (r *round) abandon() {
	for r.awaited < r.posted {
		o := r.calls[r.awaited]
		r.awaited++
		o.Ctx = context.Background()
		r.c.rec.End(o.record, &o.Op, r.c.b.Wait(&o.Op))
	}
}

// release implements calls.
func (r *round) release(c *Comm, why *PanicError) {
	r.abandon()
	c.gate.exit()
	if r.work != nil {
		r.work.complete(why)
	}
}

// single unwraps a join of one error.
func single(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok && len(j.Unwrap()) == 1 {
		return j.Unwrap()[0]
	}
	return err
}
