//go:build linux

package nccltest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// windows are a communicator's, and its signals, which are counters in a window of their own: each rank has as many for
// each other one as its configuration says.
type windows struct {
	perRank int

	mu       sync.Mutex
	open     map[abi.Window]opened
	counters backend.Window // once the first window has been registered
	counts   []int64        // this rank's: what has been signaled
	taken    []int64        // what of that has been waited for
}

// opened is a window as its communicator's engines see it.
type opened struct {
	backend.Window
	at    uintptr
	bytes uint64
}

// cover tells whether some window has memory from one address to another.
func (ws *windows) cover(from, to uintptr) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.open {
		if w.at < to && from < w.at+uintptr(w.bytes) {
			return true
		}
	}
	return false
}

// left is how many windows are registered.
func (ws *windows) left() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.open)
}

// pageSize is what windows' memory begins at multiples of.
const pageSize = 4096

func (ws *windows) configure(set map[string]string) {
	ws.perRank = 1
	if n, err := strconv.Atoi(set["numRmaSig"]); err == nil {
		ws.perRank = n
	}
	ws.open = map[abi.Window]opened{}
}

// windowRegister is collective: each rank calls it in the same order, with as many bytes. A window that isn't symmetric
// is an error here; the library has other uses for it. Memory that isn't of ncclMemAlloc is an error of CUDA
// (cuMemRetainAllocationHandle).
func (l *Library) windowRegister(h abi.Comm, p uintptr, bytes uint64, w *abi.Window, flags int32) abi.Result {
	return l.with("ncclCommWindowRegister", h, func(c *communicator) abi.Result {
		if p%pageSize != 0 || bytes == 0 || flags != abi.WindowSymmetric {
			return l.wrong(abi.InvalidArgument, "ncclCommWindowRegister: %d bytes at %#x, flags %d", bytes, p, flags)
		}
		mem, err := l.memory(p, bytes, dtype.Uint8)
		if err != nil {
			return l.wrong(abi.InvalidArgument, "ncclCommWindowRegister: %v", err)
		}
		if !l.gave(p, bytes) {
			return l.wrong(abi.UnhandledCudaError, "ncclCommWindowRegister: %#x is no memory of ncclMemAlloc", p)
		}
		l.mu.Lock()
		l.next++
		handle := abi.Window(l.next)
		l.mu.Unlock()
		*w = handle
		return l.run(c, func() error { return c.register(handle, p, mem) })
	})
}

func (c *communicator) register(handle abi.Window, p uintptr, mem *tensor.Tensor) error {
	if !c.enter() {
		return backend.ErrAborted
	}
	defer c.running.Done()
	c.lane.Lock()
	defer c.lane.Unlock()
	b, ok := (*c.b.Load()).(backend.Windower)
	if !ok {
		return errors.New("no windows")
	}
	ws := &c.windows
	if ws.counters == nil {
		counts := make([]int64, c.n*ws.perRank)
		w, err := b.NewWindow(c.ctx, tensor.Of(counts), ever)
		if err != nil {
			return c.alone(err)
		}
		ws.mu.Lock()
		ws.counters, ws.counts, ws.taken = w, counts, make([]int64, len(counts))
		ws.mu.Unlock()
	}
	w, err := b.NewWindow(c.ctx, mem, ever)
	if err != nil {
		return c.alone(err)
	}
	for q := range c.n {
		if w.Size(q) != mem.NumEl() {
			return fmt.Errorf("rank %d registers %d bytes, and this one %d", q, w.Size(q), mem.NumEl())
		}
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.open[handle] = opened{w, p, uint64(mem.NumEl())}
	return nil
}

// alone is the error of a registration that other ranks don't take part in: they do something else, or nothing, or have
// aborted, which affects them alone. It waits until this rank aborts, too, as the library does.
func (c *communicator) alone(err error) error {
	if errors.Is(err, backend.ErrMismatch) || errors.Is(err, backend.ErrAborted) {
		<-c.aborted
	}
	return err
}

func (l *Library) windowDeregister(h abi.Comm, handle abi.Window) abi.Result {
	return l.with("ncclCommWindowDeregister", h, func(c *communicator) abi.Result {
		c.windows.mu.Lock()
		w, ok := c.windows.open[handle]
		delete(c.windows.open, handle)
		c.windows.mu.Unlock()
		if !ok {
			return l.wrong(abi.InvalidArgument, "ncclCommWindowDeregister: no such window")
		}
		return l.run(c, func() error {
			if !c.enter() {
				return backend.ErrAborted
			}
			defer c.running.Done()
			c.lane.Lock()
			defer c.lane.Unlock()
			return w.Close(c.ctx, ever)
		})
	})
}

// reaches checks what all of these operations have.
func (c *communicator) reaches(peer, signal, ctx int32, flags uint32) error {
	switch {
	case c.windows.counters == nil:
		return errors.New("no window has been registered")
	case peer < 0 || int(peer) >= c.n:
		return errors.New("no such peer")
	case signal < 0 || int(signal) >= c.windows.perRank:
		return fmt.Errorf("signal %d of %d", signal, c.windows.perRank)
	case ctx != 0 || flags != 0:
		return fmt.Errorf("context %d, flags %d", ctx, flags)
	}
	return nil
}

// tell adds one to a counter of a peer's, when what was put there before is complete.
func (c *communicator) tell(peer, signal int32) error {
	at := backend.Target{Rank: int(peer), Offset: c.rank*c.windows.perRank + int(signal)}
	return errors.Join(c.windows.counters.Accumulate(c.ctx, tensor.Of([]int64{1}), backend.SumKind, at, ever),
		c.windows.counters.Fence(c.ctx, int(peer), ever))
}

func (l *Library) putSignal(in uintptr, n uint64, dt abi.DataType, peer int32, handle abi.Window, offset uint64, signal,
	ctx int32, flags uint32, h abi.Comm, s abi.Stream) abi.Result {
	return l.enqueue("ncclPutSignal", h, s, func(c *communicator, it *item) error {
		c.windows.mu.Lock()
		w, ok := c.windows.open[handle]
		c.windows.mu.Unlock()
		err := c.reaches(peer, signal, ctx, flags)
		if !ok {
			err = errors.Join(err, errors.New("no such window"))
		}
		if err != nil {
			return err
		}
		src, err := l.memory(in, n*uint64(types[dt].Size()), dtype.Uint8)
		if err == nil && offset+uint64(src.NumEl()) > w.bytes {
			err = fmt.Errorf("%d bytes at %d of %d", src.NumEl(), offset, w.bytes)
		}
		it.do = func() error {
			at := backend.Target{Rank: int(peer), Offset: int(offset)}
			return errors.Join(w.Put(c.ctx, src, at, ever), w.Fence(c.ctx, int(peer), ever), c.tell(peer, signal))
		}
		return err
	})
}

func (l *Library) signal(peer, signal, ctx int32, flags uint32, h abi.Comm, s abi.Stream) abi.Result {
	return l.enqueue("ncclSignal", h, s, func(c *communicator, it *item) error {
		it.do = func() error { return c.tell(peer, signal) }
		return c.reaches(peer, signal, ctx, flags)
	})
}

func (l *Library) waitSignal(n int32, p *abi.SignalWait, h abi.Comm, s abi.Stream) abi.Result {
	if n != 1 {
		return l.wrong(abi.InvalidArgument, "ncclWaitSignal: the stand-in waits for one peer at a time, not %d", n)
	}
	return l.enqueue("ncclWaitSignal", h, s, func(c *communicator, it *item) error {
		want := *p
		it.do = func() error { return c.awaitSignal(want, l.opts.WaitsForSignal) }
		return c.reaches(want.Peer, want.Signal, want.Context, 0)
	})
}

// awaitSignal takes signals of a peer, for which it waits. It tells the observer, if there is one, before it waits.
func (c *communicator) awaitSignal(want abi.SignalWait, observer func(rank int)) error {
	ws, at := &c.windows, int(want.Peer)*c.windows.perRank+int(want.Signal)
	until := atomic.AddInt64(&ws.taken[at], int64(want.Count))
	if observer != nil && atomic.LoadInt64(&ws.counts[at]) < until {
		observer(c.rank)
	}
	for pause := time.Microsecond; atomic.LoadInt64(&ws.counts[at]) < until; pause = min(2*pause, time.Millisecond) {
		select {
		case <-c.aborted:
			return backend.ErrAborted
		case <-time.After(pause):
		}
	}
	return nil
}
