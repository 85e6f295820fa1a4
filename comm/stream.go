package comm

import (
	"context"
	"errors"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// streamExecutor puts operations on a stream of the device as functions of the host, which engines of the process run
// when the stream gets there. Operations on tensors of the host are the hostExecutor's, after all that was enqueued
// before.
type streamExecutor struct {
	*streams
}

func (x *streamExecutor) carryOut(o *call) error {
	if !o.onDevice {
		return x.carryOutOnHost(o)
	}
	if held := o.owner; held {
		defer func() {
			if held {
				x.c.abortCall(o, recover())
			}
		}()
		done := x.runInline(o)
		if held = false; done {
			return nil
		}
	}
	return x.enqueueCall(x.c.detach(o))
}

// enqueueCall enqueues an operation as functions of a stream.
func (x *streamExecutor) enqueueCall(o *call) error {
	t := x.taskOf(o)
	return x.enqueue(o, &t, func(s *device.Stream) error {
		switch t.kind {
		case ofMessages:
			return x.enqueueRound(&t, o.round, s)
		case onWindow:
			return x.enqueueOnWindow(&t, o.onWindow, s)
		}
		return x.enqueueCollectives(&t, o, s)
	})
}

// enqueueCollectives enqueues a collective, with those behind it in its batch.
func (x *streamExecutor) enqueueCollectives(t *task, o *call, s *device.Stream) error {
	var out results
	for y := o; y != nil; y = y.next {
		if err := out.reach(x.c, y, s); err != nil {
			return err
		}
	}
	for y := o; y != nil; {
		f, next := x.function(t, y), y.next
		if err := s.HostFunc(y.Kind.String(), f); err != nil {
			return err
		}
		y = next
	}
	return errors.Join(out.enqueue(), t.recordEnd(s))
}

// function is a collective as a function of a stream, or of a graph's runs.
func (x *streamExecutor) function(t *task, o *call) func() error {
	o.Ctx = context.Background() // the caller's is for the call; what is enqueued has its timeout
	if !t.capturing {
		end := t.handle
		return func() error { return x.turn(o, end) }
	}
	own := x.c.inheritedBy(o)
	o.work = nil
	return func() error {
		run := *o
		x.c.refreshSettings(&run, own)
		return x.turn(&run, handle{})
	}
}

// turn runs a collective when its stream gets there, alone as always. Of a batch the last one completes the Work, or
// the first that fails: the stream leaves out what comes behind that.
func (x *streamExecutor) turn(o *call, h handle) (err error) {
	c := x.c
	h.start()
	run := func() error {
		if c.gate.closed() {
			return &FinalizedError{Where: c.at(o.Kind.String())}
		}
		return c.execute(o)
	}
	ended := func(e error) {
		if err = e; err != nil || o.next == nil {
			h.end(err)
		}
	}
	if c.lane.tryAcquire() {
		c.attempt(o.Kind.String(), o, run, func(e error) {
			c.lane.release()
			ended(e)
		})
		return err
	}
	<-c.lane.after(func() { c.attempt(o.Kind.String(), o, run, func(e error) { err = e }) })
	ended(err)
	return err
}

// enqueueRound enqueues messages. They are posted when the stream gets there, in the order in which they were enqueued,
// and later work of the stream waits until they are done. Asynchronous ones have a stream of their own, since one may
// have to wait for the next.
func (x *streamExecutor) enqueueRound(t *task, r *round, s *device.Stream) error {
	e := &enqueuedRound{c: x.c, op: t.op, calls: r.calls}
	var out results
	for _, o := range r.calls {
		if err := out.reach(x.c, o, s); err != nil {
			return err
		}
		o.Ctx, o.work = context.Background(), nil
		if t.capturing {
			e.own = append(e.own, x.c.inheritedBy(o))
		}
	}
	e.handle = t.atEnd()
	if err := x.posts.before(s); err != nil {
		return err
	}
	if err := s.HostFunc("post "+t.op, e.post); err != nil {
		return err
	}
	if err := x.posts.after(s); err != nil {
		return err
	}
	if err := s.HostFunc(t.op, e.complete); err != nil {
		return err
	}
	return errors.Join(out.enqueue(), t.recordEnd(s))
}

// enqueuedRound is messages on a stream. One of its functions posts them, and a later one completes them.
type enqueuedRound struct {
	c     *Comm
	op    string
	calls []*call
	own   []inherited // of captured ones, which have a round for each run of the graph; else nil
	handle
	now *round // that is under way; runs of a graph don't overlap
}

func (e *enqueuedRound) post() (err error) {
	c := e.c
	e.start()
	e.now = &round{c: c, op: e.op, calls: e.calls}
	if e.own != nil {
		e.now.calls = make([]*call, len(e.calls))
		for i, o := range e.calls {
			run := *o
			e.now.calls[i] = &run
			c.refreshSettings(&run, e.own[i])
		}
	}
	if !c.gate.enter() {
		err = &FinalizedError{Where: c.at(e.op)}
		e.end(err)
		return err
	}
	c.attempt(e.op, e.now, func() error {
		err := e.now.post(false)
		if err != nil {
			err = e.now.complete(err) // none is left under way
		}
		return err
	}, func(ended error) {
		if err = ended; err != nil {
			e.leave(err)
		}
	})
	return err
}

func (e *enqueuedRound) complete() (err error) {
	e.c.attempt(e.op, e.now, func() error { return e.now.complete(nil) }, func(ended error) {
		err = ended
		e.leave(err)
	})
	return err
}

// leave ends the round within the gate.
func (e *enqueuedRound) leave(err error) {
	e.now.abandon()
	e.c.gate.exit()
	e.end(err)
}

// enqueueOnWindow enqueues an operation on a window.
func (x *streamExecutor) enqueueOnWindow(t *task, op *windowCall, s *device.Stream) error {
	if err := op.replace(engineView(s)); err != nil {
		return err
	}
	h, name, w := t.atEnd(), t.op, op.w
	run := func() error {
		if op.kind.chained() {
			if !w.enter() {
				return &FinalizedError{Where: w.c.at(name)}
			}
			defer w.exit()
		}
		h.start()
		return op.do(context.Background(), w.w)
	}
	if err := s.HostFunc(name, func() error {
		err := run()
		h.end(err)
		return err
	}); err != nil {
		return err
	}
	return t.recordEnd(s)
}

// originals are the tensors that the caller of an operation on a device passed.
type originals struct {
	in, out, factor *tensor.Tensor
	ins, outs       []*tensor.Tensor
	async           bool
	ctx             context.Context
}

// keepOriginals is due before a call's tensors are replaced.
func (o *call) keepOriginals() {
	o.originals = &originals{o.In, o.Out, o.Reduce.FactorTensor, o.Ins, o.Outs, o.work != nil, o.Ctx}
}

// engineView makes views that engines of the process can touch, and notes that s uses the memory. Hooks get what the
// caller gave: a view would let them read device memory.
func engineView(s *device.Stream) func(*tensor.Tensor) (*tensor.Tensor, error) {
	return func(t *tensor.Tensor) (*tensor.Tensor, error) {
		if err := t.UsedBy(s); err != nil {
			return nil, err
		}
		return t.EngineView()
	}
}
