package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/device"
)

// transferOn enqueues sends and receives, several as a batch. They are posted when the stream gets there, in the order
// in which they were enqueued, and later work of the stream waits until they are done. Asynchronous ones have a stream
// of their own, since one may have to wait for the next.
func (c *Comm) transferOn(op string, w *Work, ctx context.Context, calls ...*call) error {
	if cause := c.b.Cause(); cause != nil {
		return cause
	}
	cur, err := calls[0].Stream, error(nil)
	if cur == nil {
		cur, err = c.dev().dev.CurrentStream(ctx)
	}
	if err != nil {
		return c.deviceError(op, err)
	}
	if w != nil {
		if err := w.issueOn(c, op); err != nil {
			return err
		}
	}
	if err := c.pushTransfers(op, w, cur, calls); err != nil {
		err = c.deviceError(op, err)
		if w != nil {
			w.complete(err)
		}
		return err
	}
	return nil
}

func (c *Comm) pushTransfers(op string, w *Work, cur *device.Stream, calls []*call) (err error) {
	d := c.dev()
	d.mu.Lock()
	defer d.mu.Unlock()
	unbind, err := d.bind()
	if err != nil {
		return err
	}
	defer unbind()
	s, capturing := cur, cur.Capturing()
	if w != nil {
		if s, err = d.transfer(); err != nil {
			return err
		}
		if err := s.WaitStream(cur); err != nil {
			return err
		}
	}
	if d.enq != nil {
		return c.enqueueOps(op, w, s, calls...)
	}
	own := make([]inherited, len(calls))
	for i, o := range calls {
		if err := engineViews(o, s); err != nil {
			return err
		}
		o.Ctx = context.Background()
		o.work = nil
		own[i] = c.inheritedBy(o)
	}
	complete := func(err error) {
		if w != nil && !capturing {
			w.complete(err)
		}
	}
	var r *round // of the first function, for the second; runs of a graph don't overlap
	post := func() (err error) {
		if w != nil && !capturing {
			w.start()
		}
		r = &round{c: c, calls: calls}
		if capturing {
			r.calls = make([]*call, len(calls))
			for i, o := range calls {
				x := *o
				r.calls[i] = &x
				c.refreshSettings(&x, own[i])
			}
		}
		if !c.gate.enter() {
			err = &FinalizedError{Where: c.at(op)}
			complete(err)
			return err
		}
		c.attempt(op, r, func() error {
			err := r.post(false)
			if err != nil {
				err = single(errors.Join(err, r.await())) // none is left under way
			}
			return err
		}, func(e error) {
			if err = e; err != nil {
				r.abandon()
				c.gate.exit()
				complete(err)
			}
		})
		return err
	}
	await := func() (err error) {
		c.attempt(op, r, r.await, func(e error) {
			err = e
			r.abandon()
			c.gate.exit()
			complete(err)
		})
		return err
	}
	if err := d.posts.before(s); err != nil {
		return err
	}
	if err := s.HostFunc("post "+op, post); err != nil {
		return err
	}
	if err := d.posts.after(s); err != nil {
		return err
	}
	if err := s.HostFunc(op, await); err != nil {
		return err
	}
	if w != nil {
		err = s.Record(&w.on.event)
		if capturing {
			w.complete(err)
		}
	}
	return err
}

// transfer returns a stream that nothing is enqueued on.
func (s *streams) transfer() (*device.Stream, error) {
	for _, x := range s.transfers {
		if !x.Capturing() {
			if done, err := x.Query(); done && err == nil {
				return x, nil
			}
		}
	}
	x, err := takeStream(s.dev, s.priority)
	if err == nil {
		s.transfers = append(s.transfers, x)
	}
	return x, err
}
