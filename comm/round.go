package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/device"
)

// round is messages that are posted and completed together, within the gate: one, or those of a batch.
type round struct {
	c      *Comm
	op     string // as errors call it
	calls  []*call
	ctx    context.Context
	stream *device.Stream // where they go on a device; nil: the current one
	work   *Work          // nil if it isn't asynchronous

	posted  int // so many of them, from the first
	awaited int // so many of these

	only call // of a round of one
	one  [1]*call
}

// onlyCall makes it a round of one, and returns the call.
func (r *round) onlyCall(c *Comm) *call {
	r.c, r.one[0], r.only.round = c, &r.only, r
	r.calls = r.one[:]
	return &r.only
}

// current is the message whose hook runs, if one does.
func (r *round) current() *call {
	for _, o := range r.calls {
		if o.running.hook != nil {
			return o
		}
	}
	if len(r.calls) == 0 { // an operation on a window
		return nil
	}
	return r.calls[0]
}

// post begins the messages, up to the first that fails.
func (r *round) post(async bool) error {
	for _, o := range r.calls {
		o.record = r.c.rec.Issue(&o.Op, async, false)
		if err := r.c.submit(o); err != nil {
			return r.c.finish(o, err)
		}
		r.posted++
	}
	return nil
}

// complete completes those that were posted; err is what has ended the posting.
func (r *round) complete(err error) error {
	for r.awaited < r.posted {
		o := r.calls[r.awaited]
		r.awaited++
		if e := r.c.finish(o, r.c.b.Wait(&o.Op)); e != nil {
			err = errors.Join(err, e)
		}
	}
	r.leaveOut()
	if err != nil {
		err = single(err)
	}
	return err
}

// leaveOut ends what messages have that aren't posted.
func (r *round) leaveOut() {
	for _, o := range r.calls[r.posted:] {
		o.stage.end()
	}
}

// abandon completes those that are still under way when a hook has panicked at another. The communicator is broken.
func (r *round) abandon() {
	for r.awaited < r.posted {
		o := r.calls[r.awaited]
		r.awaited++
		o.Ctx = context.Background()
		r.c.rec.End(o.record, &o.Op, r.c.b.Wait(&o.Op))
		o.stage.end()
	}
	r.leaveOut()
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
