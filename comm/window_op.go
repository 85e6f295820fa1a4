package comm

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// windowOp is an operation on a window as a value.
type windowOp struct {
	kind    windowKind
	ts      [3]*tensor.Tensor // in the order of the backend's arguments
	to      Target            // of signals and fences the rank alone
	slot    int
	reduce  backend.ReduceKind
	timeout time.Duration
}

type windowKind uint8

const (
	putOp windowKind = iota
	getOp
	accumulateOp
	fetchOp
	compareAndSwapOp
	signalOp
	waitSignalOp
	fenceOp
)

var windowKinds = [...]string{"put", "get", "accumulate", "fetch_op", "compare_and_swap", "signal", "wait_signal", "fence"}

func (k windowKind) String() string { return windowKinds[k] }

// chained reports whether operations of a kind are in an order of the window's. One that is awaited elsewhere, a
// signal, is in no order but its stream's.
func (k windowKind) chained() bool { return k != waitSignalOp }

// do has the backend carry the operation out.
func (x *windowOp) do(ctx context.Context, w backend.Window) error {
	switch x.kind {
	case putOp:
		return w.Put(ctx, x.ts[0], x.to, x.timeout)
	case getOp:
		return w.Get(ctx, x.ts[0], x.to, x.timeout)
	case accumulateOp:
		return w.Accumulate(ctx, x.ts[0], x.reduce, x.to, x.timeout)
	case fetchOp:
		return w.FetchOp(ctx, x.ts[0], x.ts[1], x.reduce, x.to, x.timeout)
	case compareAndSwapOp:
		return w.CompareAndSwap(ctx, x.ts[0], x.ts[1], x.ts[2], x.to, x.timeout)
	case signalOp:
		return w.Signal(ctx, x.to.Rank, x.slot, x.timeout)
	case waitSignalOp:
		return w.WaitSignal(ctx, x.to.Rank, x.slot, x.timeout)
	}
	return w.Fence(ctx, x.to.Rank, x.timeout)
}

// replace replaces the tensors by what f returns for them.
func (x *windowOp) replace(f func(t *tensor.Tensor) (*tensor.Tensor, error)) (err error) {
	for i, t := range x.ts {
		if t != nil && err == nil {
			x.ts[i], err = f(t)
		}
	}
	return err
}

const hostBlocks = "it's on the host's memory, where operations on windows block: leave out Async"

// windowCall is an operation on a window on its way from a method to the backend.
type windowCall struct {
	windowOp
	w    *Window
	call call
}

// run is the path of an operation on a window: it's checked, and carried out by the executor.
func (w *Window) run(ctx context.Context, op windowOp, opts []Option) error {
	x, name := &windowCall{windowOp: op, w: w}, op.kind.String()
	o := &x.call
	if err := w.fill(ctx, o, name, opts); err != nil {
		return err
	}
	if x.kind == waitSignalOp { // Close doesn't wait for it
		defer runtime.KeepAlive(w) // or a caller that has nothing but the window would lose the communicator meanwhile
	} else {
		if !w.enter() {
			return &FinalizedError{Where: w.c.at(name)}
		}
		defer w.exit()
	}
	err := w.check(&x.windowOp)
	if moves := x.kind <= accumulateOp; err != nil || moves && x.ts[0].NumEl() == 0 {
		return w.nothing(o.work, name, err)
	}
	x.timeout, o.onWindow = o.Timeout, x
	if o.onDevice, err = w.onStream(o.Ctx, o.work, &x.windowOp); err != nil {
		return err
	}
	return w.c.placement.Load().carryOut(o)
}

// enter is the begin of every operation on the memory of the window. If it succeeds, exit is due.
func (w *Window) enter() bool {
	if !w.c.gate.enter() {
		return false
	}
	if !w.gate.enter() {
		w.c.gate.exit()
		return false
	}
	return true
}

func (w *Window) exit() {
	w.gate.exit()
	w.c.gate.exit()
}

// fill checks what all operations have in common and applies the options that they take.
func (w *Window) fill(ctx context.Context, o *call, op string, opts []Option) error {
	w.c.fill(o, ctx, backend.Send, opts)
	if w.gate.closed() {
		return &FinalizedError{Where: w.c.at(op)}
	}
	if err := w.c.usable(o.Ctx, op); err != nil {
		return err
	}
	if o.nilOption != 0 {
		return w.c.noOption(op, o.nilOption)
	}
	if o.hasInto || o.from != nil || o.Timeout <= 0 {
		return w.c.invalid(op, "window operations take Timeout, which must be positive, and Async on a device, as their only options")
	}
	return nil
}

// onStream reports whether an operation is enqueued. One that isn't comes after those that are, and has no work.
func (w *Window) onStream(ctx context.Context, work *Work, x *windowOp) (on bool, err error) {
	on = w.on
	op := x.kind.String()
	if first := x.ts[0]; first != nil {
		on = !first.OnHost()
		bad := w.c.here(first)
		for _, t := range x.ts[1:] {
			if t != nil && t.On() != first.On() {
				bad = apartFrom(first, t)
			}
		}
		if bad != "" {
			return false, w.c.invalid(op, "%s", bad)
		}
	}
	switch {
	case on:
	case work != nil:
		err = w.c.invalid(op, "%s", hostBlocks)
	case w.c.dev() != nil:
		err = w.quiesce(ctx, op)
	}
	return on, err
}

// nothing is an operation on no elements, if err is nil: it's done when it's issued.
func (w *Window) nothing(work *Work, op string, err error) error {
	if err != nil || work == nil {
		return err
	}
	if w.c.dev() == nil {
		return w.c.invalid(op, "%s", hostBlocks)
	}
	if err = work.issueOn(w.c, op); err == nil {
		work.complete(nil)
	}
	return err
}

// quiesce waits until the operations that were enqueued are done, well or not.
func (w *Window) quiesce(ctx context.Context, op string) error {
	if err := w.order.event.Synchronize(ctx); err != nil && ctx.Err() != nil && !errors.Is(err, device.ErrFailed) {
		return &CanceledError{Where: w.c.at(op), Err: context.Cause(ctx)}
	}
	return nil
}

// check checks an operation's arguments.
func (w *Window) check(x *windowOp) error {
	op := x.kind.String()
	switch x.kind {
	case signalOp, waitSignalOp:
		if bad := w.c.peer(x.to.Rank, "peer"); bad != "" {
			return w.c.invalid(op, "%s", bad)
		}
		if x.slot < 0 || x.slot >= SignalSlots {
			return w.c.invalid(op, "slot must be in range [0, %d), but got %d", SignalSlots, x.slot)
		}
		return nil
	case fenceOp:
		if bad := w.c.peer(x.to.Rank, "peer"); bad != "" && x.to.Rank != -1 {
			return w.c.invalid(op, "%s", bad)
		}
		return nil
	}
	for i, n := 0, x.tensors(); i < n; i++ {
		if err := w.inside(op, x.ts[i], x.to); err != nil {
			return err
		}
		if n := x.ts[i].NumEl(); x.kind > accumulateOp && n != 1 {
			return w.c.invalid(op, "it takes one element, not %d", n)
		}
	}
	if x.kind == accumulateOp || x.kind == fetchOp {
		return w.updates(op, x.reduce)
	}
	return nil
}

// tensors is how many tensors an operation takes.
func (x *windowOp) tensors() int {
	switch x.kind {
	case putOp, getOp, accumulateOp:
		return 1
	case fetchOp:
		return 2
	case compareAndSwapOp:
		return 3
	}
	return 0
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

// updates checks that a reduction suits one-sided updates.
func (w *Window) updates(op string, k backend.ReduceKind) error {
	if k < backend.SumKind || k > backend.BXorKind {
		return w.c.invalid(op, "reduction %v does not apply to a window", k)
	}
	if !reducible[k][w.dt] {
		return w.c.invalid(op, "reduction %v is not defined on dtype %v", k, w.dt)
	}
	return nil
}
