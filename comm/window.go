package comm

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/observe"
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

	mu    sync.Mutex
	order chain // of operations on a device
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
		return nil, c.refuse(op, false, err)
	}
	if c.size == 0 {
		return nil, c.refuse(op, false, c.invalid(op, "%s", noWorld))
	}
	wb, ok := c.b.(backend.Windower)
	if !ok {
		return nil, &UnsupportedError{Where: c.at(op), Detail: "backend " + c.backend + " has no windows"}
	}
	dt := dtype.Invalid
	if t != nil {
		if bad := one("tensor", t, dtype.Invalid); bad != "" {
			return nil, c.refuse(op, false, c.invalid(op, "%s", bad))
		}
		dt = t.DType()
	}
	on := c.dev() != nil && (t == nil || !t.OnHost())
	t, err := c.exposed(ctx, op, t)
	if err == nil {
		err = c.quiesce(ctx)
	}
	if err != nil {
		return nil, c.refuse(op, false, err)
	}
	var w backend.Window
	n := 0
	if t != nil {
		n = t.NumEl()
	}
	err = c.exclusive(observe.NewWindow, n, func() (err error) {
		w, err = wb.NewWindow(ctx, t, c.Options().Timeout)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Window{c: c, w: w, dt: dt, on: on, gate: gate{shut: make(chan struct{})}}, nil
}

// begin checks what all window operations have in common and applies the option that
// they take, Timeout. If it succeeds, end is due.
func (w *Window) begin(ctx context.Context, op string, opts []Option) (call, error) {
	o, err := w.fill(ctx, op, opts)
	if err != nil {
		return o, err
	}
	if !w.c.gate.enter() {
		return o, &FinalizedError{Where: w.c.at(op)}
	}
	if !w.gate.enter() {
		w.c.gate.exit()
		return o, &FinalizedError{Where: w.c.at(op)}
	}
	return o, nil
}

func (w *Window) end() {
	w.gate.exit()
	w.c.gate.exit()
}

func (w *Window) fill(ctx context.Context, op string, opts []Option) (call, error) {
	var o call
	w.c.fill(&o, ctx, backend.Send, opts)
	if w.gate.closed() {
		return o, &FinalizedError{Where: w.c.at(op)}
	}
	if err := w.c.usable(o.Ctx, op); err != nil {
		return o, err
	}
	if o.nilOption != 0 {
		return o, w.c.noOption(op, o.nilOption)
	}
	if o.hasInto || o.from != nil || o.Timeout <= 0 {
		return o, w.c.invalid(op, "window operations take Timeout, which must be positive, and Async on a device, as their only options")
	}
	return o, nil
}

// inside checks a tensor against the target's window.
func (w *Window) inside(op string, t *tensor.Tensor, to Target) error {
	if bad := firstOf(w.c.peer(to.Rank, "target"), one("tensor", t, w.dt)); bad != "" {
		return w.c.invalid(op, "%s", bad)
	}
	if size := w.w.Size(to.Rank); to.Offset < 0 || to.Offset > size || t.NumEl() > size-to.Offset {
		return w.c.invalid(op, "elements %d to %d are outside of the %d elements of rank %d's window", to.Offset, to.Offset+t.NumEl(), size, to.Rank)
	}
	return nil
}

// Put writes src into the target. When it returns src may be reused. The target sees
// the data after a Signal that follows, or after this rank's Fence.
func (w *Window) Put(ctx context.Context, src *tensor.Tensor, to Target, opts ...Option) error {
	const op = "put"
	o, err := w.begin(ctx, op, opts)
	if err != nil {
		return err
	}
	defer w.end()
	if err := w.inside(op, src, to); err != nil || src.NumEl() == 0 {
		return w.nothing(o.work, op, err)
	}
	if on, err := w.onStream(o.Ctx, o.work, op, src); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, to.Rank, true, func(ctx context.Context, ts []*tensor.Tensor) error {
			return w.w.Put(ctx, ts[0], to, timeout)
		}, src)
	}
	return rethrow(w.w.Put(o.Ctx, src, to, o.Timeout))
}

// Get reads the target into dst.
func (w *Window) Get(ctx context.Context, dst *tensor.Tensor, from Target, opts ...Option) error {
	const op = "get"
	o, err := w.begin(ctx, op, opts)
	if err != nil {
		return err
	}
	defer w.end()
	if err := w.inside(op, dst, from); err != nil || dst.NumEl() == 0 {
		return w.nothing(o.work, op, err)
	}
	if on, err := w.onStream(o.Ctx, o.work, op, dst); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, from.Rank, true, func(ctx context.Context, ts []*tensor.Tensor) error {
			return w.w.Get(ctx, ts[0], from, timeout)
		}, dst)
	}
	return rethrow(w.w.Get(o.Ctx, dst, from, o.Timeout))
}

// updates checks that a reduction suits one-sided updates.
func (w *Window) updates(op string, r Reduction) error {
	if r.Kind < backend.SumKind || r.Kind > backend.BXorKind {
		return w.c.invalid(op, "reduction %v does not apply to a window", r.Kind)
	}
	if !reducible[r.Kind][w.dt] {
		return w.c.invalid(op, "reduction %v is not defined on dtype %v", r.Kind, w.dt)
	}
	return nil
}

// Accumulate combines src into the target, atomically with respect to every rank's
// Accumulate, FetchOp and CompareAndSwap. It's complete at the target after Fence, or for a Signal that follows.
func (w *Window) Accumulate(ctx context.Context, src *tensor.Tensor, r Reduction, to Target, opts ...Option) error {
	const op = "accumulate"
	o, err := w.begin(ctx, op, opts)
	if err != nil {
		return err
	}
	defer w.end()
	if err = w.inside(op, src, to); err == nil {
		err = w.updates(op, r)
	}
	if err != nil || src.NumEl() == 0 {
		return w.nothing(o.work, op, err)
	}
	if on, err := w.onStream(o.Ctx, o.work, op, src); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, to.Rank, true, func(ctx context.Context, ts []*tensor.Tensor) error {
			return w.w.Accumulate(ctx, ts[0], r.Kind, to, timeout)
		}, src)
	}
	return rethrow(w.w.Accumulate(o.Ctx, src, r.Kind, to, o.Timeout))
}

// FetchOp combines the one-element src into the target atomically and puts the value before into old.
func (w *Window) FetchOp(ctx context.Context, old, src *tensor.Tensor, r Reduction, to Target, opts ...Option) error {
	const op = "fetch_op"
	o, err := w.begin(ctx, op, opts)
	if err != nil {
		return err
	}
	defer w.end()
	if err = w.scalars(op, to, old, src); err == nil {
		err = w.updates(op, r)
	}
	if err != nil {
		return err
	}
	if on, err := w.onStream(o.Ctx, o.work, op, old, src); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, to.Rank, true, func(ctx context.Context, ts []*tensor.Tensor) error {
			return w.w.FetchOp(ctx, ts[0], ts[1], r.Kind, to, timeout)
		}, old, src)
	}
	return rethrow(w.w.FetchOp(o.Ctx, old, src, r.Kind, to, o.Timeout))
}

// CompareAndSwap stores desired at the target if it holds expected, bit by bit, atomically, and puts the
// value before into old. All three are one element.
func (w *Window) CompareAndSwap(ctx context.Context, old, expected, desired *tensor.Tensor, to Target,
	opts ...Option) error {
	const op = "compare_and_swap"
	o, err := w.begin(ctx, op, opts)
	if err != nil {
		return err
	}
	defer w.end()
	if err := w.scalars(op, to, old, expected, desired); err != nil {
		return err
	}
	if on, err := w.onStream(o.Ctx, o.work, op, old, expected, desired); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, to.Rank, true, func(ctx context.Context, ts []*tensor.Tensor) error {
			return w.w.CompareAndSwap(ctx, ts[0], ts[1], ts[2], to, timeout)
		}, old, expected, desired)
	}
	return rethrow(w.w.CompareAndSwap(o.Ctx, old, expected, desired, to, o.Timeout))
}

func (w *Window) scalars(op string, to Target, ts ...*tensor.Tensor) error {
	for _, t := range ts {
		if err := w.inside(op, t, to); err != nil {
			return err
		}
		if t.NumEl() != 1 {
			return w.c.invalid(op, "it takes one element, not %d", t.NumEl())
		}
	}
	return nil
}

// Signal adds one to the peer's counter for this rank and slot, after this rank's earlier operations there.
func (w *Window) Signal(ctx context.Context, peer, slot int, opts ...Option) error {
	const op = "signal"
	o, err := w.begin(ctx, op, opts)
	if err != nil {
		return err
	}
	defer w.end()
	if err := w.signals(op, peer, slot); err != nil {
		return err
	}
	if on, err := w.onStream(o.Ctx, o.work, op); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, peer, true, func(ctx context.Context, _ []*tensor.Tensor) error {
			return w.w.Signal(ctx, peer, slot, timeout)
		})
	}
	return rethrow(w.w.Signal(o.Ctx, peer, slot, o.Timeout))
}

// WaitSignal waits for one signal from the peer in the slot and consumes it. Close does
// not wait for it: it then returns *FinalizedError.
func (w *Window) WaitSignal(ctx context.Context, peer, slot int, opts ...Option) error {
	const op = "wait_signal"
	o, err := w.fill(ctx, op, opts)
	if err == nil {
		err = w.signals(op, peer, slot)
	}
	if err != nil {
		return err
	}
	if on, err := w.onStream(o.Ctx, o.work, op); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, peer, false, func(ctx context.Context, _ []*tensor.Tensor) error {
			return w.w.WaitSignal(ctx, peer, slot, timeout)
		})
	}
	defer runtime.KeepAlive(w) // or a caller that has nothing but the window would lose the communicator meanwhile
	return w.w.WaitSignal(o.Ctx, peer, slot, o.Timeout)
}

// signals checks a signal's peer and slot.
func (w *Window) signals(op string, peer, slot int) error {
	if bad := w.c.peer(peer, "peer"); bad != "" {
		return w.c.invalid(op, "%s", bad)
	}
	if slot < 0 || slot >= SignalSlots {
		return w.c.invalid(op, "slot must be in range [0, %d), but got %d", SignalSlots, slot)
	}
	return nil
}

// Fence returns when this rank's earlier operations on the peer's memory, or all ranks' with
// peer -1, are complete there.
func (w *Window) Fence(ctx context.Context, peer int, opts ...Option) error {
	const op = "fence"
	o, err := w.begin(ctx, op, opts)
	if err != nil {
		return err
	}
	defer w.end()
	if bad := w.c.peer(peer, "peer"); bad != "" && peer != -1 {
		return w.c.invalid(op, "%s", bad)
	}
	if on, err := w.onStream(o.Ctx, o.work, op); err != nil {
		return err
	} else if on {
		timeout := o.Timeout
		return w.enqueue(&o, op, peer, true, func(ctx context.Context, _ []*tensor.Tensor) error {
			return w.w.Fence(ctx, peer, timeout)
		})
	}
	return rethrow(w.w.Fence(o.Ctx, peer, o.Timeout))
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
	if err := w.c.quiesce(ctx); err != nil {
		return err
	}
	return w.c.exclusive(observe.CloseWindow, 0, func() error {
		<-w.gate.shut
		return w.w.Close(ctx, w.c.Options().Timeout)
	})
}
