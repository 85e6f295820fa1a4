package base

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/tensor"
)

// Window is one rank's part of a one-sided window. Puts and gets go straight to
// memory that can be mapped. Everything else is a request to the target, where a
// goroutine serves requests in the order in which each rank sent them: that's what
// makes updates atomic and a signal follow the puts before it.
type Window struct {
	x       *Windows
	release func() // this rank's memory
	id      uint64
	t       *tensor.Tensor // this rank's memory; nil exposes nothing
	dt      dtype.DType
	sizes   []int            // elements, by rank
	ptrs    []unsafe.Pointer // mapped memory, by rank; nil where it can't be

	locks   []sync.Mutex // order the requests to each rank
	replies atomic.Uint64
	closed  atomic.Bool
	stop    *fabric.Abort // ends the service
	done    chan struct{} // closed when the service has ended
	ended   error         // why it has; valid once done is closed

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a signal arrives
	signals []uint32      // by rank*SignalSlots+slot
	update  sync.Mutex    // held while this rank's memory is updated
}

// A request travels as a header of requestBytes and at most windowChunk bytes of
// payload:
//
//	0 kind, 1 reduction, 2..3 signal slot, 8..15 offset in elements, 16..23 elements, 24..31 reply tag
const (
	requestBytes = 32
	windowChunk  = 256 << 10
)

// The kinds of request.
const (
	requestPut = iota + 1
	requestGet
	requestAccumulate
	requestFetchOp
	requestCompareAndSwap
	requestSignal
	requestFence
)

// The tags of a window's messages on the internal class: bit 63 marks windows, 24 bits the
// window, the rest 0 for requests or a reply's number.
func (w *Window) tag(reply uint64) uint64 { return 1<<63 | w.id<<39 | reply&(1<<39-1) }

// Windows are the windows of a communicator over messages.
type Windows struct {
	*Transfers
	Rank int
	// Own carries out a collective of the communicator's own.
	Own func(p Purpose, op *backend.Op) error
	// Failed is what breaks the communicator, and the error, if Own's results can't be used.
	Failed func(op *backend.Op, err error) error
	// LostPeer breaks the communicator because a peer is lost, and returns the error.
	LostPeer func(at backend.Where, peer int, err error) error
	// Memory, if it isn't nil, reaches memory of other ranks where it lies.
	Memory WindowMemory

	Mapped, Staged atomic.Uint64 // puts, gets and updates: to memory where it lies, and by messages

	made uint64
	open map[*Window]struct{}
}

// WindowMemory reaches the memory of other ranks' windows.
type WindowMemory interface {
	// Expose says where others find n bytes of this rank's memory, until release is called.
	Expose(p unsafe.Pointer, n int) (place [2]uint64, release func())
	// Map returns memory of another rank; nil without an error if it can't be reached.
	Map(w *fabric.Waiter, rank int, place [2]uint64, n int) (unsafe.Pointer, error)
}

// New makes a window. It's collective, as backend.Windower says.
func (x *Windows) New(ctx context.Context, t *tensor.Tensor, timeout time.Duration) (*Window, error) {
	n := len(x.Members)
	x.made++
	w := &Window{x: x, id: x.made & (1<<24 - 1), t: t, sizes: make([]int, n), ptrs: make([]unsafe.Pointer, n),
		locks: make([]sync.Mutex, n), release: func() {}, stop: fabric.NewAbort(), done: make(chan struct{}),
		changed: make(chan struct{}), signals: make([]uint32, n*backend.SignalSlots)}
	mine := make([]int64, 5)
	if t != nil {
		mine[0], mine[1] = int64(t.DType()), int64(t.NumEl())
		if x.Memory != nil && t.NBytes() > 0 {
			place, release := x.Memory.Expose(t.Pointer(), t.NBytes())
			mine[2], mine[3], w.release = int64(place[0]), int64(place[1]), release
		}
	}
	all := make([]int64, 5*n)
	op := &backend.Op{Kind: backend.AllGatherSingle, In: tensor.Of(mine), Out: tensor.Of(all), Ctx: ctx, Timeout: timeout}
	err := x.Own(ForNewWindow, op)
	if err == nil {
		copy(all[5*x.Rank:], mine) // whatever the others have made of it
		err = w.meet(op, all)
	}
	if err != nil {
		w.release()
		return nil, err
	}
	if x.open == nil {
		x.open = map[*Window]struct{}{}
	}
	x.open[w] = struct{}{}
	go w.serve()
	return w, nil
}

// meet takes what the ranks expose.
func (w *Window) meet(op *backend.Op, all []int64) error {
	x := w.x
	waiter := x.Life.Waiter()
	waiter.Begin(op.Ctx, op.Timeout)
	first := 0 // the lowest rank that exposes something
	for r := range w.sizes {
		row := [5]int64(all[5*r:])
		dt, elements, err := exposes(row)
		if err != nil {
			return &backend.InternalError{Where: w.where("new_window"), Err: fmt.Errorf("rank %d %w", r, err)}
		}
		if dt == dtype.Invalid {
			continue // exposes nothing
		}
		if w.dt == dtype.Invalid {
			w.dt, first = dt, r
		} else if dt != w.dt {
			e := &backend.MismatchError{Where: x.Life.Where(), RankA: first, RankB: r, OpA: "window of " + w.dt.String(),
				OpB: "window of " + dt.String()}
			e.Op = "new_window"
			return e
		}
		w.sizes[r] = elements
		if r == x.Rank {
			w.ptrs[r] = w.t.Pointer()
		} else if x.Memory != nil && elements > 0 {
			p, err := x.Memory.Map(waiter, r, [2]uint64{uint64(row[2]), uint64(row[3])}, elements*dt.Size())
			if err == nil {
				w.ptrs[r] = p
			} else if waiter.Check() != nil { // else requests will do
				return x.Failed(op, err)
			}
		}
	}
	return nil
}

// End ends the windows that are open when the communicator does.
func (x *Windows) End() {
	for w := range x.open {
		w.end()
	}
}

// exposes reads what a rank says of its memory.
func exposes(row [5]int64) (dt dtype.DType, elements int, err error) {
	dt = dtype.DType(row[0])
	if row[0] == int64(dtype.Invalid) {
		return dt, 0, nil
	}
	if row[0] != int64(dt) || !dt.Valid() || row[1] < 0 || row[1] > math.MaxInt/int64(dt.Size()) {
		return dtype.Invalid, 0, fmt.Errorf("exposes %d elements of type %d", row[1], row[0])
	}
	return dt, int(row[1]), nil
}

// exchange sends a request and, if answer is wanted, receives it into into.
func (w *Window) exchange(ctx context.Context, op string, to int, req []byte, wantReply bool, into unsafe.Pointer,
	bytes int, timeout time.Duration) error {
	if w.closed.Load() {
		return &backend.FinalizedError{Where: w.where(op)}
	}
	waiter := w.x.Life.Waiter()
	waiter.Begin(ctx, timeout)
	fab := w.x.Link
	var in, out fabric.Msg
	if wantReply {
		number := w.replies.Add(1)
		binary.LittleEndian.PutUint64(req[24:], number)
		in.Reset(waiter)
		in.Peer, in.Key = w.x.Members[to], fabric.Key{Comm: w.x.Comm, Class: fabric.Internal, Tag: w.tag(number)}
		in.Buf, in.Len = into, bytes
		fab.Recv(&in)
	}
	out.Reset(waiter)
	out.Peer, out.Key = w.x.Members[to], fabric.Key{Comm: w.x.Comm, Class: fabric.Internal, Tag: w.tag(0)}
	out.Buf, out.Len = unsafe.Pointer(&req[0]), len(req)
	w.locks[to].Lock()
	fab.Send(&out)
	w.locks[to].Unlock()
	err := fab.Wait(&out, waiter)
	if err != nil && !out.Done() {
		fab.Cancel(&out)
	}
	if wantReply {
		if err == nil {
			err = fab.Wait(&in, waiter)
		}
		if err != nil && !in.Done() {
			fab.Cancel(&in)
		}
		if err == nil && in.N != bytes {
			err = fmt.Errorf("rank %d answered with %d bytes, not %d", to, in.N, bytes)
		}
	}
	if err != nil {
		return w.Failure(op, to, waiter, err)
	}
	return nil
}

func (w *Window) where(op string) backend.Where {
	at := w.x.Life.Where()
	at.Op = op
	return at
}

// Failure is the error of an operation on the window that concerns a peer, or this rank: err is what the fabric, or a
// wait that began with waiter, has returned. It breaks the communicator if a rank is lost.
func (w *Window) Failure(op string, peer int, waiter *fabric.Waiter, err error) error {
	at := w.where(op)
	if p, ok := errors.AsType[*fabric.PanicError](err); ok {
		return w.x.Life.Panicked(at, p)
	}
	var lost *fabric.PeerError
	w.x.Explain(err)
	switch {
	case w.x.Life.Raised():
		return w.x.Life.Err(at)
	case errors.As(err, &lost):
		return w.x.LostPeer(at, peer, lost)
	case errors.Is(err, fabric.ErrCanceled): // a rank that leaves answers no requests any more
		return &backend.PeerLostError{Where: at, Peer: peer, Cause: Withdrew}
	case errors.Is(err, fabric.ErrTimeout), waiter.Ctx.Err() == context.DeadlineExceeded:
		return &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: waiter.Elapsed(),
			Missing: []int{peer}}}
	case waiter.Ctx.Err() != nil:
		return &backend.CanceledError{Where: at, Err: err}
	case errors.Is(err, fabric.ErrClosed):
		return &backend.FinalizedError{Where: at}
	}
	return &backend.InternalError{Where: at, Err: err}
}

func header(kind byte, to backend.Target, n int) []byte {
	req := make([]byte, requestBytes, requestBytes+64)
	req[0] = kind
	binary.LittleEndian.PutUint64(req[8:], uint64(to.Offset))
	binary.LittleEndian.PutUint64(req[16:], uint64(n))
	return req
}

// pieces calls f for parts of a transfer that fit a request.
func (w *Window) pieces(n int, f func(off, n int) error) error {
	most := windowChunk / w.dt.Size()
	for off := 0; off < n; off += most {
		if err := f(off, min(most, n-off)); err != nil {
			return err
		}
	}
	return nil
}

// Reach returns where a target lies if it's memory that this rank can access without a message, and counts the access;
// else nil.
func (w *Window) Reach(to backend.Target) unsafe.Pointer {
	p := w.ptrs[to.Rank]
	if p == nil || w.closed.Load() || w.x.Life.Raised() {
		return nil
	}
	w.x.Mapped.Add(1)
	return unsafe.Add(p, to.Offset*w.dt.Size())
}

// Put implements backend.Window.
func (w *Window) Put(ctx context.Context, src *tensor.Tensor, to backend.Target, timeout time.Duration) error {
	if p := w.Reach(to); p != nil {
		kern.Copy(p, src.Pointer(), src.NBytes())
		return nil
	}
	elem := w.dt.Size()
	w.x.Staged.Add(1)
	return w.pieces(src.NumEl(), func(off, n int) error {
		req := header(requestPut, backend.Target{Rank: to.Rank, Offset: to.Offset + off}, n)
		req = append(req, unsafe.Slice((*byte)(unsafe.Add(src.Pointer(), off*elem)), n*elem)...)
		return w.exchange(ctx, "put", to.Rank, req, false, nil, 0, timeout)
	})
}

// Get implements backend.Window.
func (w *Window) Get(ctx context.Context, dst *tensor.Tensor, from backend.Target, timeout time.Duration) error {
	if p := w.Reach(from); p != nil {
		kern.Copy(dst.Pointer(), p, dst.NBytes())
		return nil
	}
	elem := w.dt.Size()
	w.x.Staged.Add(1)
	return w.pieces(dst.NumEl(), func(off, n int) error {
		req := header(requestGet, backend.Target{Rank: from.Rank, Offset: from.Offset + off}, n)
		return w.exchange(ctx, "get", from.Rank, req, true, unsafe.Add(dst.Pointer(), off*elem), n*elem, timeout)
	})
}

// Accumulate implements backend.Window.
func (w *Window) Accumulate(ctx context.Context, src *tensor.Tensor, r backend.ReduceKind, to backend.Target,
	timeout time.Duration) error {
	elem := w.dt.Size()
	w.x.Staged.Add(1)
	return w.pieces(src.NumEl(), func(off, n int) error {
		req := header(requestAccumulate, backend.Target{Rank: to.Rank, Offset: to.Offset + off}, n)
		req[1] = byte(r)
		req = append(req, unsafe.Slice((*byte)(unsafe.Add(src.Pointer(), off*elem)), n*elem)...)
		return w.exchange(ctx, "accumulate", to.Rank, req, false, nil, 0, timeout)
	})
}

// FetchOp implements backend.Window.
func (w *Window) FetchOp(ctx context.Context, old, src *tensor.Tensor, r backend.ReduceKind, to backend.Target,
	timeout time.Duration) error {
	req := header(requestFetchOp, to, 1)
	req[1] = byte(r)
	req = append(req, unsafe.Slice((*byte)(src.Pointer()), src.NBytes())...)
	return w.exchange(ctx, "fetch_op", to.Rank, req, true, old.Pointer(), old.NBytes(), timeout)
}

// CompareAndSwap implements backend.Window.
func (w *Window) CompareAndSwap(ctx context.Context, old, expected, desired *tensor.Tensor, to backend.Target,
	timeout time.Duration) error {
	req := header(requestCompareAndSwap, to, 1)
	req = append(req, unsafe.Slice((*byte)(expected.Pointer()), expected.NBytes())...)
	req = append(req, unsafe.Slice((*byte)(desired.Pointer()), desired.NBytes())...)
	return w.exchange(ctx, "compare_and_swap", to.Rank, req, true, old.Pointer(), old.NBytes(), timeout)
}

// Signal implements backend.Window.
func (w *Window) Signal(ctx context.Context, peer, slot int, timeout time.Duration) error {
	req := header(requestSignal, backend.Target{Rank: peer}, 0)
	binary.LittleEndian.PutUint16(req[2:], uint16(slot))
	return w.exchange(ctx, "signal", peer, req, false, nil, 0, timeout)
}

// takeSignal takes a signal of a peer if there is one; if not, changed is closed when the next one comes.
func (w *Window) takeSignal(peer, slot int) (changed <-chan struct{}, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &w.signals[peer*backend.SignalSlots+slot]
	if *n == 0 {
		return w.changed, false
	}
	*n--
	return nil, true
}

// WaitSignal implements backend.Window.
func (w *Window) WaitSignal(ctx context.Context, peer, slot int, timeout time.Duration) error {
	start := time.Now()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed, ok := w.takeSignal(peer, slot)
		if ok {
			return nil
		}
		at := w.where("wait_signal")
		select {
		case <-changed:
		case <-w.done: // the window was closed, or no rank is left that could signal
			if _, ok := w.takeSignal(peer, slot); ok {
				return nil // the last that came
			}
			waiter := w.x.Life.Waiter()
			waiter.Begin(ctx, timeout)
			return w.Failure(at.Op, peer, waiter, w.ended)
		case <-w.x.Life.Broken():
			return w.x.Life.Err(at)
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: time.Since(start),
					Missing: []int{peer}}}
			}
			return &backend.CanceledError{Where: at, Err: context.Cause(ctx)}
		case <-timer.C:
			return &backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: time.Since(start),
				Missing: []int{peer}}}
		}
	}
}

// Fence implements backend.Window.
func (w *Window) Fence(ctx context.Context, peer int, timeout time.Duration) error {
	for r := range w.x.Members {
		if peer != r && peer >= 0 {
			continue
		}
		req := header(requestFence, backend.Target{Rank: r}, 0)
		if err := w.exchange(ctx, "fence", r, req, true, nil, 0, timeout); err != nil {
			return err
		}
	}
	return nil
}

// Map implements backend.Window.
func (w *Window) Map(peer int) (*tensor.Tensor, error) {
	p := w.ptrs[peer]
	if p == nil {
		return nil, &backend.UnsupportedError{Where: w.where("map"),
			Detail: fmt.Sprintf("the memory of rank %d cannot be mapped: it is on another host, was not allocated shared, or is empty", peer)}
	}
	return tensor.FromPointer(w.dt, p, w.sizes[peer])
}

// Access implements backend.Window.
func (w *Window) Access(peer int) backend.Access {
	if w.ptrs[peer] != nil {
		return backend.Unified
	}
	return backend.Separate
}

// Size implements backend.Window.
func (w *Window) Size(peer int) int { return w.sizes[peer] }

// Close implements backend.Window. The barrier comes after this rank's requests have been
// carried out, so that no rank stops serving while others still send requests.
func (w *Window) Close(ctx context.Context, timeout time.Duration) error {
	err := w.Fence(ctx, -1, timeout)
	if err == nil {
		err = w.x.Own(ForCloseWindow, &backend.Op{Kind: backend.Barrier, Ctx: ctx, Timeout: timeout})
	}
	w.end()
	return err
}

// end stops serving. Like NewWindow it's called by the collective under way.
func (w *Window) end() {
	w.closed.Store(true)
	w.stop.Raise(fabric.ErrClosed)
	<-w.done
	w.release()
	delete(w.x.open, w)
}
