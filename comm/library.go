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
	enq           backend.Enqueuer
	replays       replays
	watched       watched
	errorReturned atomic.Bool // a wait has returned, or is about to, the error of operations under way
	broke         sync.Once   // for noteDone
}

func (x *libraryExecutor) carryOut(o *call) error {
	if !o.onDevice {
		return x.carryOutOnHost(o)
	}
	return x.enqueueCall(x.c.detach(o))
}

// enqueueCall has the library enqueue an operation.
func (x *libraryExecutor) enqueueCall(o *call) error {
	t := x.taskOf(o)
	return x.enqueue(o, &t, func(on *device.Stream) error {
		switch t.kind {
		case ofMessages:
			return x.enqueueOps(&t, o.round.calls, on)
		case onWindow:
			return x.enqueueOnWindow(&t, o.onWindow, on)
		}
		return x.enqueueOps(&t, o.batch(), on)
	})
}

// batch returns the call, with those behind it in its batch.
func (o *call) batch() (all []*call) {
	for ; o != nil; o = o.next {
		all = append(all, o)
	}
	return all
}

// enqueueOps enqueues collectives, or messages, as one call of the library. During a capture they become nodes of the
// graph, whose runs this package doesn't see.
func (x *libraryExecutor) enqueueOps(t *task, calls []*call, on *device.Stream) error {
	ops := make([]*backend.Op, len(calls))
	for i, o := range calls {
		o.Ctx, o.Stream, ops[i] = context.Background(), on, &o.Op
	}
	return x.enqueueWatched(t, x.newEnqueued(t, calls, on, ops[0]), func() error {
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

// enqueueOnWindow enqueues an operation on a window.
func (x *libraryExecutor) enqueueOnWindow(t *task, op *windowCall, on *device.Stream) error {
	message := &backend.Op{Kind: backend.Recv, Peer: op.to.Rank, Timeout: op.timeout}
	return x.enqueueWatched(t, x.newEnqueued(t, nil, on, message), func() error {
		err := op.replace(func(v *tensor.Tensor) (*tensor.Tensor, error) { return v, v.UsedBy(on) })
		if err != nil {
			return err
		}
		return op.do(device.WithStream(context.Background(), on), op.w.w)
	})
}

// enqueueWatched has the library enqueue operations, by f, and has them watched until they end. The caller holds the
// lock of the streams.
func (x *libraryExecutor) enqueueWatched(t *task, e *enqueued, f func() error) (err error) {
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

// cause returns the backend's Cause. If there is one, operations that were done before have been noted.
func (x *libraryExecutor) cause() error {
	err := x.c.b.Cause()
	if err != nil {
		x.noteDone()
	}
	return err
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
