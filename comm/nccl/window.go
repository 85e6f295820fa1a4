package nccl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// windows is how many windows a communicator may have at a time, unless a hint gives it fewer counters. A library
// counts signals per communicator and index, not per window. Index 0 is that of puts, which the library counts, too,
// and for which no rank waits. Each window has as many of the other indices as there are slots.
const windows = 4

// signalsSince is the first version with more than one index, which no symbol tells of.
const signalsSince abi.Version = 23100

// windowAlignment is where the memory of windows begins.
const windowAlignment = 4096

// windowSet are a communicator's windows. They come and go on all ranks alike.
type windowSet struct {
	signals int // indices that the communicator has
	made    int
	taken   [windows]bool
}

// window is a backend.Window.
type window struct {
	*rank
	number int // among all that there have been
	place  int // among those that there are
	handle abi.Window
	dt     dtype.DType
	count  int      // elements
	starts []uint64 // where in what the library knows the memory of each rank begins

	mu       sync.Mutex
	sent     [][backend.SignalSlots]int // signals, by peer
	waited   [][backend.SignalSlots]int
	captured bool // in a graph, whose runs are not counted
}

// exposed is what ranks tell each other of a window's memory.
type exposed struct {
	DType dtype.DType `json:"d"`
	Count int         `json:"n"`
	Start uint64      `json:"s"`
}

// lacksWindows says what windows would need; nil if they're there.
func (r *rank) lacksWindows() error {
	at := r.In("new_window")
	for _, capability := range []string{"windows", "put and signal"} {
		if err := r.lib.need(at, capability); err != nil {
			return err
		}
	}
	switch {
	case r.lib.name == "NCCLX":
		return &backend.UnsupportedError{Where: at, Detail: "NCCLX's functions for windows are others than NCCL's"}
	case r.lib.version < signalsSince:
		return &backend.UnsupportedError{Where: at, Detail: fmt.Sprintf(
			"%v counts puts among the only signals that it has: numRmaSig came with NCCL %v", r.lib, signalsSince)}
	}
	return nil
}

// NewWindow implements backend.Windower.
func (r *rank) NewWindow(ctx context.Context, t *tensor.Tensor, timeout time.Duration) (backend.Window, error) {
	at := r.In("new_window")
	if err := r.lacksWindows(); err != nil {
		return nil, err
	}
	if err := r.usable(at); err != nil {
		return nil, err
	}
	set := &r.windows
	place := slices.Index(set.taken[:max(0, min(windows, (set.signals-1)/backend.SignalSlots))], false)
	if place < 0 {
		return nil, &backend.UnsupportedError{Where: at, Detail: fmt.Sprintf(
			"%d signals (numRmaSig) are enough for %d windows, which there are", set.signals,
			(set.signals-1)/backend.SignalSlots)}
	}
	set.made++
	w := &window{rank: r, number: set.made, place: place, sent: make([][backend.SignalSlots]int, r.size),
		waited: make([][backend.SignalSlots]int, r.size)}
	mine := exposed{}
	if t != nil {
		w.dt, w.count = t.DType(), t.NumEl()
		mine = exposed{w.dt, w.count, uint64(address(t)) % windowAlignment}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all, err := tellAll(ctx, r, r.st, fmt.Sprintf("window/%d", w.number), mine)
	if err != nil {
		return nil, r.absent(at, timeout, err)
	}
	for q, theirs := range all {
		if theirs.DType != all[0].DType || theirs.Count != all[0].Count {
			say := func(e exposed) string { return fmt.Sprintf("new_window(%v[%d])", e.DType, e.Count) }
			return nil, &backend.MismatchError{Where: at, RankA: 0, OpA: say(all[0]), RankB: q, OpB: say(theirs)}
		}
		w.starts = append(w.starts, theirs.Start)
	}
	if t == nil || t.NumEl() == 0 {
		return nil, &backend.UnsupportedError{Where: at, Detail: r.lib.name + " has no windows without elements"}
	}
	if err := w.register(ctx, at, t, timeout); err != nil {
		return nil, err
	}
	set.taken[place] = true
	return w, nil
}

// register has the library know the memory, from a page's beginning to a page's end.
func (w *window) register(ctx context.Context, at backend.Where, t *tensor.Tensor, timeout time.Duration) error {
	r := w.rank
	unbind, err := r.dev.Bind()
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	defer unbind()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == 0 {
		return r.Err(at)
	}
	start := w.starts[r.rank]
	bytes := (start + uint64(t.NBytes()) + windowAlignment - 1) / windowAlignment * windowAlignment
	handle := new(abi.Window)
	err = r.call(ctx, "ncclCommWindowRegister", func() abi.Result {
		return r.lib.WindowRegister(r.c, address(t)-uintptr(start), bytes, handle, abi.WindowSymmetric)
	})
	if err == nil && *handle == 0 {
		return &backend.UnsupportedError{Where: at, Detail: fmt.Sprintf("%v has no window for this memory", r.lib)}
	}
	w.handle = *handle
	if refused, ok := errors.AsType[*Error](err); ok && refused.Result == abi.UnhandledCudaError {
		err = fmt.Errorf("%w; windows take memory that %s has given out (ncclMemAlloc), as Comm.Empty and "+
			"get_mem_allocator do", err, r.lib.name)
	}
	return r.outcome(ctx, at, timeout, err)
}

// do puts a call on the stream of ctx.
func (w *window) do(ctx context.Context, op, call string, timeout time.Duration,
	f func(c abi.Comm, s abi.Stream) abi.Result) error {
	r := w.rank
	at := r.In(op)
	s, err := r.dev.CurrentStream(ctx)
	if err != nil {
		return err
	}
	if s.Capturing() {
		w.mu.Lock()
		w.captured = true
		w.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	unbind, err := r.dev.Bind()
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	defer unbind()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Raised() || r.c == 0 || r.asleep {
		return r.unusable(at)
	}
	x := &calls{rank: r, stream: abi.Stream(s.Handle())}
	x.do(call, func() abi.Result { return f(r.c, x.stream) })
	if err = x.err; err == nil && x.progress {
		err = r.await(ctx, call, r.c)
	}
	return r.outcome(ctx, at, timeout, err)
}

// Put implements backend.Window.
func (w *window) Put(ctx context.Context, src *tensor.Tensor, to backend.Target, timeout time.Duration) error {
	return w.do(ctx, "put", "ncclPutSignal", timeout, func(c abi.Comm, s abi.Stream) abi.Result {
		at := w.starts[to.Rank] + uint64(to.Offset*w.dt.Size())
		return w.lib.PutSignal(address(src), uint64(src.NBytes()), abi.Uint8, int32(to.Rank), w.handle, at, 0, 0, 0, c, s)
	})
}

// index is where a slot's signals are counted.
func (w *window) index(slot int) int32 { return int32(1 + w.place*backend.SignalSlots + slot) }

// Signal implements backend.Window.
func (w *window) Signal(ctx context.Context, peer, slot int, timeout time.Duration) error {
	err := w.do(ctx, "signal", "ncclSignal", timeout, func(c abi.Comm, s abi.Stream) abi.Result {
		return w.lib.Signal(int32(peer), w.index(slot), 0, 0, c, s)
	})
	if err == nil {
		w.mu.Lock()
		w.sent[peer][slot]++
		w.mu.Unlock()
	}
	return err
}

// WaitSignal implements backend.Window.
func (w *window) WaitSignal(ctx context.Context, peer, slot int, timeout time.Duration) error {
	return w.wait(ctx, "wait_signal", peer, slot, 1, timeout)
}

func (w *window) wait(ctx context.Context, op string, peer, slot, count int, timeout time.Duration) error {
	desc := &abi.SignalWait{Count: int32(count), Peer: int32(peer), Signal: w.index(slot)}
	err := w.do(ctx, op, "ncclWaitSignal", timeout, func(c abi.Comm, s abi.Stream) abi.Result {
		return w.lib.WaitSignal(1, desc, c, s)
	})
	if err == nil {
		w.mu.Lock()
		w.waited[peer][slot] += count
		w.mu.Unlock()
	}
	return err
}

func (w *window) lacks(op string) error {
	return &backend.UnsupportedError{Where: w.In(op),
		Detail: w.lib.name + "'s windows have put, signal and wait_signal alone"}
}

// Get implements backend.Window.
func (w *window) Get(context.Context, *tensor.Tensor, backend.Target, time.Duration) error {
	return w.lacks("get")
}

// Accumulate implements backend.Window.
func (w *window) Accumulate(context.Context, *tensor.Tensor, backend.ReduceKind, backend.Target, time.Duration) error {
	return w.lacks("accumulate")
}

// FetchOp implements backend.Window.
func (w *window) FetchOp(context.Context, *tensor.Tensor, *tensor.Tensor, backend.ReduceKind, backend.Target,
	time.Duration) error {
	return w.lacks("fetch_op")
}

// CompareAndSwap implements backend.Window.
func (w *window) CompareAndSwap(context.Context, *tensor.Tensor, *tensor.Tensor, *tensor.Tensor, backend.Target,
	time.Duration) error {
	return w.lacks("compare_and_swap")
}

// Fence implements backend.Window.
func (w *window) Fence(context.Context, int, time.Duration) error { return w.lacks("fence") }

// Map implements backend.Window.
func (w *window) Map(int) (*tensor.Tensor, error) { return nil, w.lacks("map") }

// Access implements backend.Window.
func (w *window) Access(int) backend.Access { return backend.Separate }

// Size implements backend.Window.
func (w *window) Size(int) int { return w.count }

// Close implements backend.Window. It first waits for signals of the others that have not been waited for: they would
// count for the next window with the same indices otherwise. The indices of a window that graphs have used are never
// used again.
func (w *window) Close(ctx context.Context, timeout time.Duration) error {
	r := w.rank
	at := r.In("close_window")
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w.mu.Lock()
	mine := w.sent
	w.mu.Unlock()
	all, err := tellAll(ctx, r, r.st, fmt.Sprintf("window/%d/close", w.number), mine)
	if err != nil {
		return r.absent(at, timeout, err)
	}
	s, err := r.dev.CurrentStream(ctx)
	if err != nil {
		return err
	}
	for q := range all {
		for slot, sent := range all[q][r.rank] {
			if left := sent - w.waited[q][slot]; left > 0 && !w.captured {
				if err := w.wait(device.WithStream(ctx, s), "close_window", q, slot, left, timeout); err != nil {
					return err
				}
			}
		}
	}
	if err := s.Synchronize(ctx); err != nil {
		return err
	}
	unbind, err := r.dev.Bind()
	if err != nil {
		return &backend.InternalError{Where: at, Err: err}
	}
	defer unbind()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == 0 {
		return r.Err(at)
	}
	err = r.call(ctx, "ncclCommWindowDeregister", func() abi.Result { return r.lib.WindowDeregister(r.c, w.handle) })
	r.windows.taken[w.place] = w.captured
	return r.outcome(ctx, at, timeout, err)
}
