//go:build cgo

package capi

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"sync"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// window is what a chorus_window stands for.
type window struct {
	*comm.Window
	dt dtype.DType
	m  *communicator
	on bool // it's of a device's memory

	mu    sync.Mutex
	queue []func() // asynchronous operations that wait for those before them
	busy  bool     // a goroutine runs the queue
}

func findWindow(h C.chorus_window) (*window, error) {
	if w := windows.get(uint64(h)); w != nil {
		return w, nil
	}
	return nil, refused("%#x is no window; it may have been closed", uint64(h))
}

//export goWindowCreate
func goWindowCreate(h C.chorus_comm, data unsafe.Pointer, count C.int64_t, dt C.int32_t, out *C.chorus_window,
	checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	return fail(createWindow(h, data, count, dt, out, checked))
}

func createWindow(h C.chorus_comm, data unsafe.Pointer, count C.int64_t, dt C.int32_t, out *C.chorus_window,
	checked C.int32_t) error {
	m, err := find(h)
	if err != nil {
		return err
	}
	if out == nil {
		return refused("chorus_window_create got NULL")
	}
	*out = 0
	if dt <= 0 || dt >= dtype.Count {
		return refused("there is no dtype %d", dt)
	}
	t, err := m.tensorAt(dtype.DType(dt), data, int(count))
	if err != nil {
		return refused("%v", err)
	}
	scope, err := m.scope()
	if err != nil {
		return err
	}
	var made *comm.Window
	err = running(checked, func(ctx context.Context) (err error) {
		made, err = m.NewWindow(scope(ctx), t)
		return err
	}, nil) // a window that wasn't taken ends with its communicator
	if err != nil {
		return err
	}
	w := windows.put(&window{Window: made, dt: t.DType(), m: m, on: !t.OnHost()})
	if w == 0 {
		return errors.New("chorus: too many windows")
	}
	*out = C.chorus_window(w)
	return nil
}

// The window operations, as chorus.h numbers them.
var windowOps = [...]struct {
	name                string
	data, old, expected bool
}{
	C.CHORUS_PUT: {"put", true, false, false}, C.CHORUS_GET: {"get", true, false, false},
	C.CHORUS_ACCUMULATE: {"accumulate", true, false, false},
	C.CHORUS_FETCH_OP:   {"fetch_op", true, true, false}, C.CHORUS_COMPARE_AND_SWAP: {"compare_and_swap", true, true, true},
	C.CHORUS_SIGNAL: {"signal", false, false, false}, C.CHORUS_WAIT_SIGNAL: {"wait_signal", false, false, false},
	C.CHORUS_FENCE: {"fence", false, false, false},
}

// prepare turns an operation into a function that runs it, with more options, and tells whether it holds no other
// operation up.
func (w *window) prepare(o *C.chorus_window_op, opts ...comm.Option) (run func(ctx context.Context) error, beside bool,
	err error) {
	if o == nil {
		return nil, false, refused("chorus_window_submit got NULL")
	}
	if err := sized("chorus_window_op", o.size, unsafe.Sizeof(*o)); err != nil {
		return nil, false, err
	}
	if o.kind <= 0 || int(o.kind) >= len(windowOps) {
		return nil, false, refused("there is no window operation %d", o.kind)
	}
	use := windowOps[o.kind]
	var data, old, expected *tensor.Tensor
	for _, x := range []struct {
		used bool
		name string
		p    unsafe.Pointer
		n    C.int64_t
		t    **tensor.Tensor
	}{{use.data, "data", o.data, o.count, &data}, {use.old, "old", o.old, 1, &old}, {use.expected, "expected",
		unsafe.Pointer(o.expected), 1, &expected}} {
		if !x.used {
			continue
		}
		t, err := w.m.tensorAt(w.dt, x.p, int(x.n))
		if err != nil {
			return nil, false, refused("%s: %s: %v", use.name, x.name, err)
		}
		*x.t = t
	}
	to := comm.Target{Rank: int(o.rank), Offset: int(o.offset)}
	r := comm.Reduction{Kind: backend.ReduceKind(max(0, min(o.reduction, 255)))}
	slot, kind := int(o.slot), o.kind
	if o.timeout_ns != 0 {
		opts = append(opts, comm.Timeout(timeout(o.timeout_ns)))
	}
	scope, err := w.m.scope()
	if err != nil {
		return nil, false, err
	}
	return func(ctx context.Context) error {
		ctx = scope(ctx)
		switch kind {
		case C.CHORUS_PUT:
			return w.Put(ctx, data, to, opts...)
		case C.CHORUS_GET:
			return w.Get(ctx, data, to, opts...)
		case C.CHORUS_ACCUMULATE:
			return w.Accumulate(ctx, data, r, to, opts...)
		case C.CHORUS_FETCH_OP:
			return w.FetchOp(ctx, old, data, r, to, opts...)
		case C.CHORUS_COMPARE_AND_SWAP:
			return w.CompareAndSwap(ctx, old, expected, data, to, opts...)
		case C.CHORUS_SIGNAL:
			return w.Signal(ctx, to.Rank, slot, opts...)
		case C.CHORUS_WAIT_SIGNAL:
			return w.WaitSignal(ctx, to.Rank, slot, opts...)
		default:
			return w.Fence(ctx, to.Rank, opts...)
		}
	}, kind == C.CHORUS_WAIT_SIGNAL, nil
}

// enqueue runs f after the asynchronous operations before it. It reports false, and does not, if there are none
// and f need not be asynchronous.
func (w *window) enqueue(f func(), always bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.busy && !always {
		return false
	}
	w.queue = append(w.queue, f)
	if !w.busy {
		w.busy = true
		go w.drain()
	}
	return true
}

func (w *window) drain() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.queue, w.busy = nil, false
			w.mu.Unlock()
			return
		}
		f := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		f()
	}
}

//export goWindowSubmit
func goWindowSubmit(h C.chorus_window, o *C.chorus_window_op, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWindow(h)
	if err != nil {
		return fail(err)
	}
	f, beside, err := w.prepare(o)
	if err != nil {
		return fail(err)
	}
	return fail(running(checked, func(ctx context.Context) error {
		if beside {
			return f(ctx)
		}
		e := &eventual{done: make(chan struct{})}
		if w.enqueue(func() { e.run(func() error { return f(ctx) }) }, false) {
			<-e.done
			return e.err
		}
		return f(ctx)
	}, nil))
}

//export goWindowIssue
func goWindowIssue(h C.chorus_window, o *C.chorus_window_op, out *C.chorus_work) (status C.chorus_status) {
	defer contain(&status)
	*out = 0
	w, err := findWindow(h)
	if err != nil {
		return fail(err)
	}
	if w.on {
		async := new(comm.Work)
		f, _, err := w.prepare(o, comm.Async(async))
		if err == nil {
			err = f(context.Background())
		}
		if err != nil {
			return fail(err)
		}
		return fail(giveWork(&work{m: w.m, parts: []part{async}}, out))
	}
	f, beside, err := w.prepare(o)
	if err != nil {
		return fail(err)
	}
	e := &eventual{done: make(chan struct{})}
	given := &work{m: w.m, parts: []part{e}}
	run := func() { e.run(func() error { return f(&given.canceled) }) }
	if beside {
		go run()
	} else {
		w.enqueue(run, true)
	}
	return fail(giveWork(given, out))
}

//export goWindowMap
func goWindowMap(h C.chorus_window, rank C.int32_t, out *unsafe.Pointer) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWindow(h)
	if err == nil && out == nil {
		err = refused("chorus_window_map got NULL")
	}
	if err != nil {
		return fail(err)
	}
	t, err := w.Map(int(rank))
	if err != nil {
		return fail(err)
	}
	*out = t.Pointer()
	return C.CHORUS_OK
}

//export goWindowGet
func goWindowGet(h C.chorus_window, rank C.int32_t, p *C.chorus_window_peer) (status C.chorus_status) {
	defer contain(&status)
	w, err := findWindow(h)
	if err == nil && p == nil {
		err = refused("chorus_window_get got NULL")
	}
	if err == nil {
		err = sized("chorus_window_peer", p.size, unsafe.Sizeof(*p))
	}
	if err != nil {
		return fail(err)
	}
	*p = C.chorus_window_peer{size: p.size, count: C.int64_t(w.Size(int(rank)))}
	if w.Access(int(rank)) == comm.Unified {
		p.mapped = 1
	}
	return C.CHORUS_OK
}

//export goWindowClose
func goWindowClose(h C.chorus_window, checked C.int32_t) (status C.chorus_status) {
	defer contain(&status)
	w := windows.take(uint64(h))
	if w == nil {
		_, err := findWindow(h)
		return fail(err)
	}
	return fail(running(checked, func(ctx context.Context) error {
		e := &eventual{done: make(chan struct{})}
		if w.enqueue(func() { e.run(func() error { return nil }) }, false) {
			<-e.done // what was issued before
		}
		return w.Close(ctx)
	}, nil))
}
