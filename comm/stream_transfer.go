package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/device"
)

// transferOn enqueues sends and receives, several as a batch: they are posted when the stream gets there, in the order in
// which they were enqueued, and what comes behind them on the stream waits until they are done. Asynchronous
// ones have a stream of their own, since one may have to wait for the next.
func (c *Comm) transferOn(op string, w *Work, ctx context.Context, calls ...*call) error {
	if cause := c.b.Cause(); cause != nil {
		return cause
	}
	cur, err := c.dev.dev.CurrentStream(ctx)
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
			w.settle(err)
		}
		return err
	}
	return nil
}

func (c *Comm) pushTransfers(op string, w *Work, cur *device.Stream, calls []*call) (err error) {
	d := c.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	s, capturing := cur, cur.Capturing()
	if w != nil {
		if s, err = d.transfer(); err != nil {
			return err
		}
		if err := s.WaitStream(cur); err != nil {
			return err
		}
	}
	own := make([]inherited, len(calls))
	for i, o := range calls {
		if err := engineViews(o, s); err != nil {
			return err
		}
		o.Ctx = context.Background()
		o.work = nil
		own[i] = c.inherits(o)
	}
	var posted []*call // by the first function, for the second; runs of a graph don't overlap
	post := func() error {
		if w != nil && !capturing {
			w.start()
		}
		posted = calls
		if capturing {
			posted = make([]*call, len(calls))
			for i, o := range calls {
				x := *o
				posted[i] = &x
				c.renew(&x, own[i])
			}
		}
		err := c.postAll(op, posted)
		if err != nil && w != nil && !capturing {
			w.settle(err)
		}
		return err
	}
	await := func() error {
		err := c.awaitAll(posted)
		if w != nil && !capturing {
			w.settle(err)
		}
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
			w.settle(err)
		}
	}
	return err
}

// postAll posts transfers; none is left under way if it fails.
func (c *Comm) postAll(op string, calls []*call) error {
	if !c.gate.enter() {
		return &FinalizedError{Where: c.at(op)}
	}
	for i, o := range calls {
		o.record = c.rec.Issue(&o.Op, false, false)
		if err := c.post(o); err != nil {
			for _, o := range calls[:i] {
				err = errors.Join(err, c.await(o))
			}
			c.gate.exit()
			return single(err)
		}
	}
	return nil
}

func (c *Comm) awaitAll(calls []*call) (err error) {
	defer c.gate.exit()
	for _, o := range calls {
		err = errors.Join(err, c.await(o))
	}
	return single(err)
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
