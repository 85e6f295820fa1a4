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

// recordEnd is due behind the functions of a task on its stream.
func (t *task) recordEnd(on *device.Stream) error {
	if t.work == nil {
		return nil
	}
	err := on.Record(&t.on.event)
	if t.capturing {
		t.end(err) // there are nodes now
	}
	return err
}

// taskOf is the task of an operation.
func (s *streams) taskOf(o *call) task {
	if r := o.round; r != nil {
		return task{kind: ofMessages, op: r.op, ctx: r.ctx, stream: r.stream, handle: handle{work: r.work}}
	}
	t := task{op: o.Kind.String(), ctx: o.Ctx, stream: o.Stream, order: &s.order, handle: handle{work: o.work}}
	if x := o.onWindow; x != nil {
		t.kind, t.op, t.order = onWindow, x.kind.String(), nil
		if x.kind.chained() {
			t.order = &x.w.order
		}
	}
	return t
}

// enqueue puts an operation on its stream, as a task in its order, by f. A collective that can't be enqueued is refused.
func (s *streams) enqueue(o *call, t *task, f func(on *device.Stream) error) error {
	err := s.enqueueTask(t, f)
	if err != nil && t.kind == ofCollectives {
		s.c.placement.Load().refuse(o, err)
	}
	return err
}

func (s *streams) enqueueTask(t *task, f func(on *device.Stream) error) error {
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
	if err := s.enqueueInOrder(t, cur, f); err != nil {
		err = c.deviceError(t.op, err)
		t.end(err)
		return err
	}
	return nil
}

// enqueueInOrder is enqueueTask without what concerns the Work and errors.
func (s *streams) enqueueInOrder(t *task, cur *device.Stream, f func(on *device.Stream) error) (err error) {
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
		return f(on)
	}
	if err := t.order.before(on); err != nil {
		return err
	}
	if err := f(on); err != nil {
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

// carryOutOnHost carries out an operation on tensors of the host. A collective comes after all that was enqueued before.
func (s *streams) carryOutOnHost(o *call) error {
	if o.round != nil || o.onWindow != nil || o.owner && o.work == nil && s.quiet() {
		return s.hostExecutor.carryOut(o)
	}
	o = s.c.detach(o)
	if err := s.quiesce(o.Ctx); err != nil {
		return s.c.refuse(o.Kind.String(), err)
	}
	return s.hostExecutor.carryOut(o)
}

// quiet reports whether no collective that was enqueued is under way, and no message to be posted.
func (s *streams) quiet() bool {
	for _, ch := range []*chain{&s.order, &s.posts} {
		if done, err := ch.event.Query(); !done && err == nil {
			return false
		}
	}
	return true
}

func (s *streams) quiesce(ctx context.Context) error {
	for _, ch := range []*chain{&s.order, &s.posts} {
		if err := awaitEvent(ctx, &ch.event); err != nil && ctx.Err() != nil && !errors.Is(err, device.ErrFailed) {
			return &CanceledError{Where: s.c.at(""), Err: context.Cause(ctx)}
		}
	}
	return nil
}

// refuse reports a collective that isn't valid to the backend, when those before it are done: a library puts them on
// their streams itself, and functions of the host run when theirs gets there. No rank waits for one that isn't captured.
func (s *streams) refuse(o *call, why error) {
	c, op := s.c, o.Kind.String()
	if errors.Is(why, ErrFinalized) || c.b.Cause() != nil {
		return
	}
	if cur, err := s.current(o.Ctx, o.Stream); err == nil && cur.Capturing() {
		return
	}
	if s.staged {
		_ = c.refuse(op, why)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.library != nil:
		c.refused(op, why)
	case s.order.before(s.own) != nil:
	case s.own.HostFunc("refuse "+op, func() error { c.refuse(op, why); return nil }) == nil:
		_ = s.order.after(s.own)
	}
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
