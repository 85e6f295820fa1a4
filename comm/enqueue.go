package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/device"
)

// task is operations on their way to a stream: collectives that are issued together, messages, or one on a window.
type task struct {
	kind      taskKind
	op        string          // as errors call it
	ctx       context.Context // of the call
	stream    *device.Stream  // where they go, or behind which if they are asynchronous; nil: the current one
	order     *chain          // that they are in, beside that of the stream; may be nil
	capturing bool            // they become nodes of a graph
	handle                    // of asynchronous ones
}

type taskKind uint8

const (
	ofCollectives taskKind = iota
	ofMessages
	onWindow // which reports a broken communicator itself
)

// handle is a Work and the part of it that is on the device, since the Work may be another's once it's completed. The
// zero handle is that of a synchronous operation.
type handle struct {
	work *Work
	on   *deviceWork
}

// start marks the Work as under way.
func (h handle) start() {
	if h.work != nil {
		h.work.startOn(h.on)
	}
}

// end completes the Work, unless it's completed already.
func (h handle) end(err error) {
	if h.work != nil {
		h.work.completeOn(h.on, err)
	}
}

// atEnd is the handle for the functions of a task. They have none in a graph: the streams of its runs report how these
// end.
func (t *task) atEnd() handle {
	if t.capturing {
		return handle{}
	}
	return t.handle
}

// enqueued is due behind the functions of a task on its stream.
func (t *task) enqueued(on *device.Stream) error {
	if t.work == nil {
		return nil
	}
	err := on.Record(&t.on.event)
	if t.capturing {
		t.end(err) // there are nodes now
	}
	return err
}

// collective is the task of a collective, with those behind it in its batch.
func (s *streams) collective(o *call) task {
	return task{op: o.Kind.String(), ctx: o.Ctx, stream: o.Stream, order: &s.order, handle: handle{work: o.work}}
}

// ofRound is the task of messages.
func ofRound(r *round) task {
	return task{kind: ofMessages, op: r.op, ctx: r.ctx, stream: r.stream, handle: handle{work: r.work}}
}

// ofWindow is the task of an operation on a window.
func ofWindow(w *Window, o *call, k windowKind) task {
	t := task{kind: onWindow, op: k.String(), ctx: o.Ctx, handle: handle{work: o.work}}
	if k.chained() {
		t.order = &w.order
	}
	return t
}

// enqueue puts a task on its stream, in its order, by put.
func (s *streams) enqueue(t *task, put func(on *device.Stream) error) error {
	c := s.c
	if cause := c.b.Cause(); cause != nil && t.kind != onWindow {
		return cause
	}
	unbind, err := s.bind()
	if err != nil {
		return c.deviceError(t.op, err)
	}
	defer unbind()
	cur, err := s.current(t.ctx, t.stream)
	if err == nil && t.kind == ofCollectives && t.work == nil && !cur.Capturing() {
		_, err = cur.Query() // a stream that has failed leaves out what comes, which a Work would tell
	}
	if err != nil {
		return c.deviceError(t.op, err)
	}
	if t.work != nil {
		if err := t.work.issueOn(c, t.op); err != nil {
			return err
		}
		t.on = t.work.onDevice()
	}
	if err := s.push(t, cur, put); err != nil {
		err = c.deviceError(t.op, err)
		t.end(err)
		return err
	}
	return nil
}

// push is enqueue without what concerns the Work and errors.
func (s *streams) push(t *task, cur *device.Stream, put func(on *device.Stream) error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := cur
	t.capturing = cur.Capturing()
	if t.work != nil {
		if on, err = s.ownStream(t, cur); err != nil {
			return err
		}
		if err := on.WaitStream(cur); err != nil {
			return err
		}
	}
	if t.order == nil {
		return put(on)
	}
	if err := t.order.before(on); err != nil {
		return err
	}
	if err := put(on); err != nil {
		return err
	}
	return t.order.after(on)
}

// current is the stream that a call is for.
func (s *streams) current(ctx context.Context, given *device.Stream) (*device.Stream, error) {
	if given != nil {
		return given, nil
	}
	return s.dev.CurrentStream(ctx)
}

// ownStream is where asynchronous operations go, behind what cur has. Collectives go on one stream, in their order.
// Others go on a stream that nothing is enqueued on, since one may have to wait for the next.
func (s *streams) ownStream(t *task, cur *device.Stream) (*device.Stream, error) {
	if t.kind == ofCollectives {
		if t.capturing {
			return s.order.inCapture(cur)
		}
		return s.own, nil
	}
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

// callerRuns reports whether the caller's goroutine executes a collective: its tensors are on the host, and no enqueued
// operation is under way.
func (s *streams) callerRuns(o *call) bool {
	if o.onDevice || o.work != nil {
		return false
	}
	for _, ch := range []*chain{&s.order, &s.posts} {
		if done, err := ch.event.Query(); !done && err == nil {
			return false
		}
	}
	return true
}

// runOnHost is run for a collective on tensors of the host. It comes after all that was enqueued before.
func (s *streams) runOnHost(o *call) error {
	if err := s.quiesce(o.Ctx); err != nil {
		return s.c.refuse(o.Kind.String(), err)
	}
	return s.hostExecutor.run(o)
}

func (s *streams) quiesce(ctx context.Context) error {
	for _, ch := range []*chain{&s.order, &s.posts} {
		if err := awaitEvent(ctx, &ch.event); err != nil && ctx.Err() != nil && !errors.Is(err, device.ErrFailed) {
			return &CanceledError{Where: s.c.at(""), Err: context.Cause(ctx)}
		}
	}
	return nil
}

// refuseBy ends a collective that isn't valid: tell reports it to the backend. No rank waits for one that isn't
// captured.
func (s *streams) refuseBy(o *call, why error, tell func(op string)) error {
	c := s.c
	c.rec.Refused(why)
	if errors.Is(why, ErrFinalized) || c.b.Cause() != nil {
		return why
	}
	if cur, err := s.current(o.Ctx, o.Stream); err != nil || cur.Capturing() {
		return why
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tell(o.Kind.String())
	return why
}

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
