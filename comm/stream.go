package comm

import (
	"context"
	"errors"
	"time"

	"github.com/chorus-comms/chorus/device"
)

// chain keeps things in the order in which they are enqueued, on whatever streams.
type chain struct {
	event device.Event   // behind the last one
	last  *device.Stream // of it
	// In a capture, of which there can be one at a time, a stream that has joined takes the event's place.
	captured *device.Stream
}

// before lets what is enqueued on s next come after the last one.
func (ch *chain) before(s *device.Stream) error {
	if s.Capturing() {
		if ch.captured != nil && ch.captured.Capturing() {
			return s.WaitStream(ch.captured)
		}
		return nil
	}
	if s.Equal(ch.last) {
		return nil
	}
	return s.Wait(&ch.event)
}

// after makes what was enqueued on s the last one.
func (ch *chain) after(s *device.Stream) error {
	if s.Capturing() {
		c, err := ch.inCapture(s)
		if err != nil {
			return err
		}
		return c.WaitStream(s)
	}
	ch.last = s
	return s.Record(&ch.event)
}

// inCapture returns the chain's own stream for captures.
func (ch *chain) inCapture(s *device.Stream) (*device.Stream, error) {
	if ch.captured == nil {
		c, err := takeStream(s.Device(), s.Priority())
		if err != nil {
			return nil, err
		}
		ch.captured = c
	}
	return ch.captured, nil
}

// inherited are the settings that an operation has from its communicator. A captured one has those of the time of the
// replay, so that a graph needs no new capture when they change.
type inherited struct{ timeout, hints bool }

func (c *Comm) inheritedBy(o *call) inherited {
	i := inherited{timeout: o.Timeout == time.Duration(c.timeout.Load())}
	if h := c.hints.Load(); h == nil {
		i.hints = o.Hints == nil
	} else {
		i.hints = len(o.Hints) == len(*h)
		for k, v := range *h {
			i.hints = i.hints && o.Hints[k] == v
		}
	}
	return i
}

// refreshSettings gives a captured operation the communicator's current settings.
func (c *Comm) refreshSettings(o *call, i inherited) {
	if i.timeout {
		o.Timeout = time.Duration(c.timeout.Load())
	}
	if i.hints {
		o.Hints = nil
		if h := c.hints.Load(); h != nil {
			o.Hints = *h
		}
	}
}

// collectiveOn is collective for the communicator of a device: it enqueues the call where its tensors are on the
// device. Operations on the host come after what was enqueued before, as everywhere.
func (c *Comm) collectiveOn(o *call) error {
	held := o.owner
	defer c.recoverAndAbort(o, &held)
	err := c.validate(o)
	switch {
	case err != nil || !held:
	case o.onDevice && c.runInline(o):
		held = false
		return nil
	case !o.onDevice && o.work == nil && c.quiescent():
		err := c.execute(o)
		held = false
		c.releaseCall()
		return rethrow(err)
	}
	if held { // what is enqueued needs the call, and not the lane
		moved := *o
		moved.owner = false
		held = false
		c.releaseCall()
		o = &moved
	}
	if err != nil {
		return c.refuseOnStream(o, err)
	}
	return c.issueOn(o)
}

// issueOn enqueues a call, with those behind it in its batch, or issues them if their tensors are on the host.
func (c *Comm) issueOn(o *call) error {
	if o.onDevice {
		if err := c.enqueue(o); err != nil {
			return c.refuseOnStream(o, err)
		}
		return nil
	}
	if err := c.quiesce(o.Ctx); err != nil {
		return c.refuse(o.Kind.String(), false, err)
	}
	return c.issue(o)
}

// enqueue puts a collective, with those behind it in its batch, on a stream: synchronous ones on the current stream,
// asynchronous ones on the communicator's own, behind what the current stream has.
func (c *Comm) enqueue(o *call) error {
	if cause := c.b.Cause(); cause != nil {
		return cause
	}
	op := o.Kind.String()
	unbind, err := c.dev().bind()
	if err != nil {
		return c.deviceError(op, err)
	}
	defer unbind()
	cur, err := c.current(o)
	if err == nil && o.work == nil && !cur.Capturing() {
		_, err = cur.Query() // a stream that has failed leaves out what comes, which a Work would tell
	}
	if err != nil {
		return c.deviceError(op, err)
	}
	if o.work != nil {
		if err := o.work.issueOn(c, op); err != nil {
			return err
		}
	}
	if err := c.push(o, cur); err != nil {
		err = c.deviceError(op, err)
		if o.work != nil {
			o.work.complete(err)
		}
		return err
	}
	return nil
}

// current is the stream that a call is for.
func (c *Comm) current(o *call) (*device.Stream, error) {
	if o.Stream != nil {
		return o.Stream, nil
	}
	return c.dev().dev.CurrentStream(o.Ctx)
}

// push is enqueue without what concerns the Work and errors.
func (c *Comm) push(o *call, cur *device.Stream) (err error) {
	d := c.dev()
	d.mu.Lock()
	defer d.mu.Unlock()
	s, capturing := cur, cur.Capturing()
	if o.work != nil {
		if s = d.own; capturing {
			if s, err = d.order.inCapture(cur); err != nil {
				return err
			}
		}
		if err := s.WaitStream(cur); err != nil {
			return err
		}
	}
	if d.enq != nil {
		if err := d.order.before(s); err != nil {
			return err
		}
		if err := c.enqueueOps(o.Kind.String(), o.work, s, o.batch()...); err != nil {
			return err
		}
		return d.order.after(s)
	}
	for x := o; x != nil; x = x.next {
		if err := engineViews(x, s); err != nil {
			return err
		}
	}
	work := o.work // which is another's, maybe, once the last of them is done
	if capturing {
		defer func() {
			if err == nil && work != nil {
				work.complete(nil) // there is a node now; the streams report how its replays end
			}
		}()
	}
	if err := d.order.before(s); err != nil {
		return err
	}
	for x := o; x != nil; x = x.next {
		if err := s.HostFunc(x.Kind.String(), c.performFunc(x, capturing)); err != nil {
			return err
		}
	}
	if work != nil {
		if err := s.Record(&work.on.event); err != nil {
			return err
		}
	}
	return d.order.after(s)
}

// batch returns the call, with those behind it in its batch.
func (o *call) batch() (all []*call) {
	for ; o != nil; o = o.next {
		all = append(all, o)
	}
	return all
}

// performFunc is perform as a function of a stream, or of a graph's runs.
func (c *Comm) performFunc(o *call, captured bool) func() error {
	o.Ctx = context.Background() // the caller's is for the call; what is enqueued has its timeout
	if !captured {
		return func() error { return c.perform(o) }
	}
	own := c.inheritedBy(o)
	return func() error {
		x := *o
		x.work = nil
		c.refreshSettings(&x, own)
		return c.perform(&x)
	}
}

// perform runs an enqueued collective when its stream gets there, alone as always. Of a batch the last one completes
// the Work, or the first that fails: the stream leaves out what comes behind that.
func (c *Comm) perform(o *call) error {
	if o.work != nil {
		o.work.start()
	}
	run := func() error {
		if c.gate.closed() {
			return &FinalizedError{Where: c.at(o.Kind.String())}
		}
		return c.execute(o)
	}
	var err error
	ended := func(e error) {
		err = e
		if o.work != nil && (err != nil || o.next == nil) {
			o.work.complete(err)
		}
	}
	if c.lane.tryAcquire() {
		c.attempt(o.Kind.String(), o, run, func(e error) {
			c.lane.release()
			ended(e)
		})
		return err
	}
	done := make(chan struct{})
	c.lane.enqueue(func() {
		c.attempt(o.Kind.String(), o, run, func(e error) {
			ended(e)
			close(done)
		})
	})
	<-done
	return err
}

// refuseOnStream is refuse for a call that would have been enqueued. No rank waits for an operation that isn't
// captured.
func (c *Comm) refuseOnStream(o *call, why error) error {
	c.rec.Refused(why)
	c.announceRefused(o, why)
	return why
}

func (c *Comm) announceRefused(o *call, why error) {
	if errors.Is(why, ErrFinalized) || c.b.Cause() != nil {
		return
	}
	cur, err := c.current(o)
	if err != nil || cur.Capturing() {
		return
	}
	d, op := c.dev(), o.Kind.String()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.enq != nil {
		c.refuse(op, true, why)
		return
	}
	if d.order.before(d.own) != nil {
		return
	}
	if d.own.HostFunc("refuse "+op, func() error { c.refuse(op, false, why); return nil }) == nil {
		_ = d.order.after(d.own)
	}
}
