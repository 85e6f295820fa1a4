package comm

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// libraryExecutor has the backend's library put operations on a stream of the device by itself. Operations on tensors
// of the host are the hostExecutor's, after all that was enqueued before.
type libraryExecutor struct {
	*streams
	watched       watched
	errorReturned atomic.Bool // a wait has returned, or is about to, the error of operations under way
	broke         sync.Once   // for noteDone
}

// run has the library put a collective on a stream, with those behind it in its batch.
func (x *libraryExecutor) run(o *call) error {
	if !o.onDevice {
		return x.runOnHost(o)
	}
	t := x.collective(o)
	if err := x.enqueue(&t, func(on *device.Stream) error { return x.putOps(&t, o.batch(), on) }); err != nil {
		return x.refuse(o, err)
	}
	return nil
}

// batch returns the call, with those behind it in its batch.
func (o *call) batch() (all []*call) {
	for ; o != nil; o = o.next {
		all = append(all, o)
	}
	return all
}

func (x *libraryExecutor) joins(o *call) bool { return o.onDevice }

func (x *libraryExecutor) refuse(o *call, why error) error {
	return x.refuseBy(o, why, func(op string) { x.c.refused(op, why) })
}

// messages has the library put messages on a stream, asynchronous ones on one of their own.
func (x *libraryExecutor) messages(r *round) error {
	if !r.calls[0].onDevice {
		return x.hostExecutor.messages(r)
	}
	t := ofRound(r)
	return x.enqueue(&t, func(on *device.Stream) error { return x.putOps(&t, r.calls, on) })
}

// putOps has the library put collectives, or messages, on a stream as one call. During a capture they become nodes of
// the graph, whose runs this package doesn't see.
func (x *libraryExecutor) putOps(t *task, calls []*call, on *device.Stream) error {
	ops := make([]*backend.Op, len(calls))
	for i, o := range calls {
		o.Ctx, o.Stream, ops[i] = context.Background(), on, &o.Op
	}
	return x.put(t, x.newEnqueued(t, calls, on, ops[0]), func() error {
		end := func() error { return nil }
		if t.capturing {
			var err error
			if end, err = x.replays.begin(x, on, calls); err != nil {
				return err
			}
		}
		if err := x.enq.Enqueue(ops...); err != nil {
			return err
		}
		for _, o := range calls {
			x.c.report(o, nil)
			o.value, o.from = nil, nil // the caller's again
		}
		return end()
	})
}

// window has the library put an operation on a window on a stream.
func (x *libraryExecutor) window(w *Window, o *call, op windowOp) error {
	t := ofWindow(w, o, op.kind)
	op.timeout = o.Timeout
	return x.enqueue(&t, func(on *device.Stream) error {
		message := &backend.Op{Kind: backend.Recv, Peer: op.to.Rank, Timeout: op.timeout}
		return x.put(&t, x.newEnqueued(&t, nil, on, message), func() error {
			err := op.replace(func(v *tensor.Tensor) (*tensor.Tensor, error) { return v, v.UsedBy(on) })
			if err != nil {
				return err
			}
			return op.do(device.WithStream(context.Background(), on), w.w)
		})
	})
}

// put has the library put operations on their stream, by f, and has them watched until they end. The caller holds the
// lock of the streams.
func (x *libraryExecutor) put(t *task, e *enqueued, f func() error) (err error) {
	c := x.c
	if !c.gate.enter() {
		return &FinalizedError{Where: c.at(t.op)}
	}
	c.attempt(t.op, e, func() error {
		for _, o := range e.calls {
			if err := x.begin(t, o); err != nil {
				return err
			}
		}
		if !t.capturing {
			if err := e.s.Record(&e.began); err != nil {
				return err
			}
		}
		if err := f(); err != nil {
			return err
		}
		if t.capturing && t.work == nil {
			return nil
		}
		return e.s.Record(&e.on.event)
	}, func(ended error) { err = ended })
	if err == nil && !t.capturing {
		x.watch(e)
		return nil
	}
	x.finish(e, err)
	return err
}

// begin prepares a call for the library, behind its pre-hooks.
func (x *libraryExecutor) begin(t *task, o *call) error {
	err := o.Replace(func(v *tensor.Tensor) (*tensor.Tensor, error) { return v, v.UsedBy(o.Stream) })
	if err != nil {
		return err
	}
	if !t.capturing {
		o.record = x.c.rec.Issue(&o.Op, t.work != nil, true)
	}
	return x.c.before(o)
}

func (x *libraryExecutor) work() *deviceWork { return &deviceWork{dev: x.dev, broken: x.cause} }

// cause returns the backend's Cause. If there is one, operations that were done before have been noted.
func (x *libraryExecutor) cause() error {
	err := x.c.b.Cause()
	if err != nil {
		x.noteDone()
	}
	return err
}

func (x *libraryExecutor) view(t *tensor.Tensor) (*tensor.Tensor, error) { return t, nil }

func (x *libraryExecutor) exclude() (resume func()) {
	x.mu.Lock()
	return x.mu.Unlock
}

// fatalBehind aborts the process if the communicator was told to by [WithAbortBehind], for an operation on a stream
// that has failed and was called at a site. It doesn't for an abort of this rank's own, or if a call has the error.
func (x *libraryExecutor) fatalBehind(err error, site uint16) {
	c := x.c
	if e, ok := errors.AsType[*AbortedError](err); ok && e.By == c.rank || !c.abortBehind || c.b.Cause() == nil ||
		errors.Is(err, ErrFinalized) || x.errorReturned.Load() {
		return
	}
	c.abortProcess(err, site, "since what the stream has behind the operation would go on without its results "+
		"(WithAbortBehind; in Python TORCH_NCCL_ASYNC_ERROR_HANDLING)")
}
