package accl

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/links"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// exposed is memory of windows: a peer-to-peer buffer of its rank's engine. Engines of the same process copy to and
// from it; engines of the same host do, too, if they can map the memory. All other accesses go by messages, which are
// put into the engines' streams.
type exposed struct {
	*link
	members []int
}

// memory returns how this rank's engine reaches the windows of others.
func (l *link) memory(members []int) base.WindowMemory { return exposed{l, members} }

// Expose implements base.WindowMemory. The place is the buffer's address, or that of the links.
func (x exposed) Expose(p unsafe.Pointer, n int) (place [2]uint64, release func()) {
	none := func() {}
	if x.staged { // what engines reach is a copy
		return place, none
	}
	if net, apart := x.network.(*links.Network); apart {
		at := net.Place(p, n)
		return [2]uint64{at.Segment, at.Offset}, none
	}
	b, err := x.driver.Wrap(bytesAt(p, n), abi.Int8, accl.P2P())
	if err != nil {
		return place, none
	}
	return [2]uint64{b.Addr()}, func() { b.Free() }
}

var errApart = errors.New("the engine is in another process")

// Map implements base.WindowMemory.
func (x exposed) Map(w *fabric.Waiter, rank int, place [2]uint64, n int) (unsafe.Pointer, error) {
	if net, apart := x.network.(*links.Network); apart && !x.staged {
		return net.Map(w, x.members[rank], fabric.Place{Segment: place[0], Offset: place[1]}, n)
	}
	net, ok := x.network.(engine.Reacher)
	if !ok || place[0] == 0 {
		return nil, errApart
	}
	b, release := net.Reach(uint32(x.members[rank]), place[0], n, false)
	release() // the window's end is collective
	if b == nil {
		return nil, errApart
	}
	return unsafe.Pointer(unsafe.SliceData(b)), nil
}

// window is a rank's part of a window. This rank's engine copies to and from memory that it reaches.
type window struct {
	*base.Window
	rank *rank
}

// NewWindow implements backend.Windower.
func (x *rank) NewWindow(ctx context.Context, t *tensor.Tensor, timeout time.Duration) (backend.Window, error) {
	w, err := x.Runner.NewWindow(ctx, t, timeout)
	if b, ok := w.(*base.Window); ok {
		w = &window{b, x}
	}
	return w, err
}

// Put implements backend.Window.
func (w *window) Put(ctx context.Context, src *tensor.Tensor, to backend.Target, timeout time.Duration) error {
	if to.Rank != w.rank.Where().Reporter {
		if p := w.Reach(to); p != nil {
			return w.move(ctx, "put", p, src.Pointer(), src.NBytes(), timeout)
		}
	}
	return w.Window.Put(ctx, src, to, timeout)
}

// Get implements backend.Window.
func (w *window) Get(ctx context.Context, dst *tensor.Tensor, from backend.Target, timeout time.Duration) error {
	if from.Rank != w.rank.Where().Reporter {
		if p := w.Reach(from); p != nil {
			return w.move(ctx, "get", dst.Pointer(), p, dst.NBytes(), timeout)
		}
	}
	return w.Window.Get(ctx, dst, from, timeout)
}

// move is a copy by the engine as a part of an operation.
func (w *window) move(ctx context.Context, op string, dst, src unsafe.Pointer, n int, timeout time.Duration) error {
	waiter := w.rank.Waiter()
	waiter.Begin(ctx, timeout)
	if err := w.rank.link.move(waiter, dst, src, n); err != nil {
		return w.Failure(op, w.rank.Where().Reporter, waiter, err)
	}
	return nil
}

// move has this rank's engine copy. Nothing touches either side any more when it returns, also when the waiter has
// given up.
func (l *link) move(w *fabric.Waiter, dst, src unsafe.Pointer, n int) error {
	for n > 0 {
		part := min(n, maxPut)
		from, err := l.driver.Wrap(bytesAt(src, part), abi.Int8, accl.P2P())
		if err != nil {
			return err
		}
		to, err := l.driver.Wrap(bytesAt(dst, part), abi.Int8, accl.P2P())
		if err == nil {
			err = errors.Join(l.driver.Copy(context.Background(), from, to, part, accl.Waits(w.Await)), to.Free())
		}
		if err = errors.Join(err, from.Free()); err != nil {
			return err
		}
		src, dst, n = unsafe.Add(src, part), unsafe.Add(dst, part), n-part
	}
	return nil
}

// shares reports whether engines reach each other's memory.
func (l *link) shares() bool {
	if net, apart := l.network.(*links.Network); apart {
		return net.Shares()
	}
	_, ok := l.network.(engine.Reacher)
	return ok
}
