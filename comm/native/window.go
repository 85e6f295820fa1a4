package native

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// NewWindow implements backend.Windower.
func (g *group) NewWindow(ctx context.Context, t *tensor.Tensor, timeout time.Duration) (backend.Window, error) {
	w, err := g.windows.New(ctx, t, timeout)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// exposed is the memory of windows, as far as the ranks of this host can map each other's.
type exposed struct{ *group }

var errApart = errors.New("its memory can't be mapped")

// Expose implements base.WindowMemory.
func (g exposed) Expose(p unsafe.Pointer, n int) (place [2]uint64, release func()) {
	if g.placer != nil {
		at := g.placer.Place(p, n)
		place = [2]uint64{uint64(at.Segment), uint64(at.Offset)}
	}
	return place, func() {}
}

// Map implements base.WindowMemory.
func (g exposed) Map(w *fabric.Waiter, rank int, at [2]uint64, n int) (unsafe.Pointer, error) {
	place := fabric.Place{Segment: at[0], Offset: at[1]}
	m := g.LocalIndex[rank]
	if m < 0 || g.placer == nil || !place.Mappable() {
		return nil, errApart
	}
	return g.Space.Resolve(w, m, place, n)
}
