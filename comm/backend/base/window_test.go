package base

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/tensor"
)

// nowhere is a link that takes all that is sent.
type nowhere struct{ Link }

func (nowhere) Send(m *fabric.Msg)                         { m.Complete(m.Len, m.Peer, nil) }
func (nowhere) Wait(m *fabric.Msg, w *fabric.Waiter) error { return m.Err }

// FuzzWindow has rank 1 ask anything of rank 0's window: nothing beside the window changes.
func FuzzWindow(f *testing.F) {
	ask := func(kind, red byte, off, n, reply uint64, data ...byte) {
		req := []byte{kind, red, 1, 0, 0, 0, 0, 0}
		for _, v := range []uint64{off, n, reply} {
			req = binary.LittleEndian.AppendUint64(req, v)
		}
		f.Add(append(req, data...))
	}
	four := []byte{1, 2, 3, 4}
	ask(requestPut, 0, 3, 1, 0, four...)
	ask(requestPut, 0, 8, 1, 0, four...)
	ask(requestPut, 0, math.MaxUint64, 1, 0, four...)
	ask(requestGet, 0, 0, 8, 5)
	ask(requestGet, 0, 1<<62, 1<<62, 5)
	ask(requestAccumulate, byte(backend.SumKind), 0, 1, 0, four...)
	ask(requestAccumulate, 200, 0, 1, 0, four...)
	ask(requestFetchOp, byte(backend.BXorKind), 7, 1, 6, four...)
	ask(requestCompareAndSwap, 0, 0, 1, 7, append(four, four...)...)
	ask(requestSignal, 0, 0, 0, 0)
	ask(requestFence, 0, 0, 0, 8)

	const elements, guard = 8, 64
	memory := make([]int32, guard+elements+guard)
	var life Life
	life.Begin("fuzz", 0, func(uint64, error) {})
	x := &Windows{Transfers: &Transfers{Life: &life, Link: nowhere{}, Members: []int{0, 1}}}
	w := &Window{x: x, t: tensor.Of(memory[guard : guard+elements]), dt: dtype.Int32, sizes: []int{elements, 0},
		signals: make([]uint32, 2*backend.SignalSlots), changed: make(chan struct{})}
	waiter := life.Waiter()
	f.Fuzz(func(t *testing.T, req []byte) {
		for i := range memory {
			memory[i] = 7
		}
		waiter.Begin(nil, time.Second)
		w.handle(1, req, waiter)
		for i, v := range memory {
			if (i < guard || i >= guard+elements) && v != 7 {
				t.Fatalf("element %d is %d", i-guard, v)
			}
		}
	})
}

// FuzzExposes has a rank say anything of its window: what is believed can be computed with.
func FuzzExposes(f *testing.F) {
	f.Add(int64(dtype.Float32), int64(100))
	f.Add(int64(dtype.Float32)+256, int64(1))
	f.Add(int64(dtype.Complex128), int64(math.MaxInt64))
	f.Add(int64(-1), int64(-1))
	f.Fuzz(func(t *testing.T, kind, n int64) {
		dt, elements, err := exposes([5]int64{kind, n})
		if err != nil || dt == dtype.Invalid {
			return
		}
		if size := dt.Size(); size < 1 || elements < 0 || elements*size/size != elements || elements*size < 0 {
			t.Fatalf("%d elements of %v", elements, dt)
		}
	})
}
