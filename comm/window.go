package comm

import (
	"context"
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// Window is memory of every rank that the others reach without its taking part.
//
//	w, err := c.NewWindow(ctx, mine)                    // collective
//	err = w.Put(ctx, x, comm.Target{Rank: 1, Offset: 8}) // into rank 1's tensor, from element 8
//	err = w.Signal(ctx, 1, 0)                           // after the put
//	err = w.WaitSignal(ctx, 0, 0)                       // on rank 1: the data is there
//	err = w.Close(ctx)                                  // collective
//
// Offsets and sizes count elements of the window's dtype. All methods may be
// called from any goroutine; bounds and dtypes are checked before anything moves.
//
// Operations on a device's memory, and signals and fences of a window that is there, are enqueued on the current
// stream. These alone take Async: they are behind what the current stream has, on a stream of their own. Others block.
type Window struct {
	c       *Comm
	w       backend.Window
	dt      dtype.DType
	on      bool // it's of a device's memory
	gate    gate // of the operations that reach memory or peers
	closing atomic.Bool

	order chain // of operations on a device; guarded by the lock of its streams
}

// Target names a place in a rank's window.
type Target = backend.Target

// Access says how a peer's memory can be reached.
type Access = backend.Access

// The kinds of access.
const (
	Separate = backend.Separate // only by the window's operations
	Unified  = backend.Unified  // also by loads and stores, through Map
)

// SignalSlots is how many independent signal counters there are between each two ranks of a window.
const SignalSlots = backend.SignalSlots

// NewWindow exposes t, which stays the caller's, to all ranks. It's collective. Every rank
// passes the same dtype; sizes may differ; nil exposes nothing. A tensor on a device is exposed when what the current
// stream does to it is done.
func (c *Comm) NewWindow(ctx context.Context, t *tensor.Tensor) (*Window, error) {
	const op = "new_window"
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(ctx, op); err != nil {
		return nil, c.refuse(op, err)
	}
	if c.size == 0 {
		return nil, c.refuse(op, c.invalid(op, "%s", noWorld))
	}
	wb, ok := c.b.(backend.Windower)
	if !ok {
		return nil, &UnsupportedError{Where: c.at(op), Detail: "backend " + c.backend + " has no windows"}
	}
	dt := dtype.Invalid
	if t != nil {
		if bad := one("tensor", t, dtype.Invalid); bad != "" {
			return nil, c.refuse(op, c.invalid(op, "%s", bad))
		}
		dt = t.DType()
	}
	on := c.dev() != nil && !c.dev().staged && (t == nil || !t.OnHost())
	t, err := c.exposed(ctx, op, t)
	if err == nil {
		err = c.placement.Load().quiesce(ctx)
	}
	if err != nil {
		return nil, c.refuse(op, err)
	}
	var w backend.Window
	n := 0
	if t != nil {
		n = t.NumEl()
	}
	err = c.exclusive(record.NewWindow, n, func() (err error) {
		w, err = wb.NewWindow(ctx, t, c.Options().Timeout)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Window{c: c, w: w, dt: dt, on: on, gate: gate{shut: make(chan struct{})}}, nil
}

// exposed is a window's memory as the backend can touch it, when what the current stream does to it is done.
func (c *Comm) exposed(ctx context.Context, op string, t *tensor.Tensor) (*tensor.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	if bad := c.here(t); bad != "" {
		return nil, c.invalid(op, "%s", bad)
	}
	if t.OnHost() {
		return t, nil
	}
	if c.dev().staged {
		return nil, c.untouchable(op, t.On())
	}
	s, err := t.On().CurrentStream(ctx)
	if err == nil {
		err = s.Synchronize(ctx)
	}
	if err == nil {
		t, err = c.placement.Load().view(t)
	}
	return t, c.deviceError(op, err)
}

// Put writes src into the target. When it returns src may be reused. The target sees
// the data after a Signal that follows, or after this rank's Fence.
func (w *Window) Put(ctx context.Context, src *tensor.Tensor, to Target, opts ...Option) error {
	return w.run(ctx, windowOp{kind: putOp, ts: [3]*tensor.Tensor{src}, to: to}, opts)
}

// Get reads the target into dst.
func (w *Window) Get(ctx context.Context, dst *tensor.Tensor, from Target, opts ...Option) error {
	return w.run(ctx, windowOp{kind: getOp, ts: [3]*tensor.Tensor{dst}, to: from}, opts)
}

// Accumulate combines src into the target, atomically with respect to every rank's
// Accumulate, FetchOp and CompareAndSwap. It's complete at the target after Fence, or for a Signal that follows.
func (w *Window) Accumulate(ctx context.Context, src *tensor.Tensor, r Reduction, to Target, opts ...Option) error {
	return w.run(ctx, windowOp{kind: accumulateOp, ts: [3]*tensor.Tensor{src}, reduce: r.Kind, to: to}, opts)
}

// FetchOp combines the one-element src into the target atomically and puts the value before into old.
func (w *Window) FetchOp(ctx context.Context, old, src *tensor.Tensor, r Reduction, to Target, opts ...Option) error {
	return w.run(ctx, windowOp{kind: fetchOp, ts: [3]*tensor.Tensor{old, src}, reduce: r.Kind, to: to}, opts)
}

// CompareAndSwap stores desired at the target if it holds expected, bit by bit, atomically, and puts the
// value before into old. All three are one element.
func (w *Window) CompareAndSwap(ctx context.Context, old, expected, desired *tensor.Tensor, to Target,
	opts ...Option) error {
	return w.run(ctx, windowOp{kind: compareAndSwapOp, ts: [3]*tensor.Tensor{old, expected, desired}, to: to}, opts)
}

// Signal adds one to the peer's counter for this rank and slot, after this rank's earlier operations there.
func (w *Window) Signal(ctx context.Context, peer, slot int, opts ...Option) error {
	return w.run(ctx, windowOp{kind: signalOp, to: Target{Rank: peer}, slot: slot}, opts)
}

// WaitSignal waits for one signal from the peer in the slot and consumes it. Close does
// not wait for it: it then returns *FinalizedError.
func (w *Window) WaitSignal(ctx context.Context, peer, slot int, opts ...Option) error {
	return w.run(ctx, windowOp{kind: waitSignalOp, to: Target{Rank: peer}, slot: slot}, opts)
}

// Fence returns when this rank's earlier operations on the peer's memory, or all ranks' with
// peer -1, are complete there.
func (w *Window) Fence(ctx context.Context, peer int, opts ...Option) error {
	return w.run(ctx, windowOp{kind: fenceOp, to: Target{Rank: peer}}, opts)
}

// Map returns the peer's memory as a one-dimensional tensor of this process, if Access(peer) is Unified.
// It's valid until Close. Memory of a device isn't the host's to touch: it's an *UnsupportedError.
func (w *Window) Map(peer int) (*tensor.Tensor, error) {
	if w.on {
		return nil, &UnsupportedError{Where: w.c.at("map"), Detail: "windows of a device can't be mapped for the host: Get copies"}
	}
	if bad := w.c.peer(peer, "peer"); bad != "" {
		return nil, w.c.invalid("map", "%s", bad)
	}
	if w.gate.closed() {
		return nil, &FinalizedError{Where: w.c.at("map")}
	}
	return w.w.Map(peer)
}

// Access tells how the peer's memory can be reached.
func (w *Window) Access(peer int) Access {
	if peer < 0 || peer >= w.c.size || w.on {
		return Separate
	}
	return w.w.Access(peer)
}

// Size returns the number of elements of the peer's window; 0 for a rank that doesn't exist.
func (w *Window) Size(peer int) int {
	if peer < 0 || peer >= w.c.size {
		return 0
	}
	return w.w.Size(peer)
}

// Close ends the window on all ranks, after every rank's operations on it. It's
// collective. A second call returns *FinalizedError.
func (w *Window) Close(ctx context.Context) error {
	const op = "close_window"
	if ctx == nil {
		ctx = context.Background()
	}
	if err := w.quiesce(ctx, op); err != nil {
		return err
	}
	if w.c.gate.closed() || !w.closing.CompareAndSwap(false, true) {
		return &FinalizedError{Where: w.c.at(op)}
	}
	w.gate.close()
	if err := w.c.placement.Load().quiesce(ctx); err != nil {
		return err
	}
	return w.c.exclusive(record.CloseWindow, 0, func() error {
		<-w.gate.shut
		return w.w.Close(ctx, w.c.Options().Timeout)
	})
}
