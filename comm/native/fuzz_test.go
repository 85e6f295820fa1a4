package native

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

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

	ctx, cancel := context.WithCancel(context.Background())
	f.Cleanup(cancel)
	const elements, guard = 8, 64
	memory := make([]int32, guard+elements+guard)
	opened := pair(f, ctx)
	var windows [2]backend.Window
	var errs [2]error
	var wg sync.WaitGroup
	for r := range opened {
		wg.Go(func() {
			windows[r], errs[r] = opened[r].(*group).NewWindow(ctx, tensor.Of(memory[guard:guard+elements]), 10*time.Second)
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		f.Fatal(err)
	}
	w := windows[0].(*window)
	waiter := fabric.NewWaiter(w.stop)
	f.Fuzz(func(t *testing.T, req []byte) {
		for i := range memory {
			memory[i] = 7
		}
		waiter.Begin(nil, time.Millisecond) // nobody takes the answer
		w.handle(1, req, waiter)
		for i, v := range memory {
			if (i < guard || i >= guard+elements) && v != 7 {
				t.Fatalf("element %d is %d", i-guard, v)
			}
		}
	})
}

// pair opens a world of two.
func pair(t testing.TB, ctx context.Context) (opened [2]backend.Backend) {
	t.Helper()
	st := store.NewHash(0)
	var errs [2]error
	var wg sync.WaitGroup
	for r := range opened {
		wg.Go(func() {
			opened[r], errs[r] = Open(ctx, backend.Config{Name: "fuzz", Rank: r, Size: 2, Store: st, Device: "cpu",
				Timeout: 10 * time.Second,
				Hints:   map[string]string{"fabric": "mem"}, Log: slog.New(slog.DiscardHandler)})
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for _, b := range opened {
			b.Finalize(ctx)
		}
		st.Close()
	})
	return opened
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

// FuzzDescription has a rank describe its operation by any 32 bytes: they're put into words.
func FuzzDescription(f *testing.F) {
	f.Add([]byte{byte(backend.AllReduce), byte(dtype.Float32), byte(backend.SumKind), 0, 0, 0, 0, 0, 8})
	f.Add([]byte{byte(backend.Broadcast), byte(dtype.Float32), 0, 0, 0xff, 0xff, 0xff, 0xff, 8})
	f.Add([]byte{byte(backend.Barrier)})
	f.Add([]byte{1, 1, 1, byte(base.ForNewWindow)})
	f.Add(bytes.Repeat([]byte{0xff}, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d fabric.Desc
		copy(d[:], b)
		if text := base.Words(&d); text == "" || len(text) > 300 || strings.Contains(text, "%!") {
			t.Errorf("%x is %q", d, text)
		}
	})
}

// FuzzTerms has rank 1 offer anything: rank 0 refuses it, or has numbers that it can compute costs from.
func FuzzTerms(f *testing.F) {
	f.Add([]byte(`{"Fabric":"mem","Cores":2,"StageBytes":1048576}`))
	f.Add([]byte(`{"Fabric":"mem","Cores":1,"StageBytes":1048576,"Machine":{"Ranks":2}}`))
	f.Add([]byte(`{"Fabric":"tcp","Cores":-1}`))
	f.Add([]byte(`{"Fabric":"mem","Cores":1,"CPUs":"0-4000000000","StageBytes":1048576}`))
	f.Add([]byte(`{"Fabric":"mem","Cores":1,"CPUs":"5,7","StageBytes":1048576}`))
	f.Add([]byte(`{"Cores":1e999}`))
	mine := terms{Fabric: "mem", Cores: 2, StageBytes: 4 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, first := range []bool{false, true} {
			agreed, err := mine.agree(t.Context(), backend.Where{}, func(_ context.Context, mine []byte) ([][]byte, error) {
				if first {
					return [][]byte{b, mine}, nil
				}
				return [][]byte{mine, b}, nil
			})
			if err != nil {
				continue
			}
			if m := agreed.machine(); agreed.Cores < 1 || agreed.Cores > 1<<16 || agreed.here < 2 ||
				agreed.StageBytes < minStage || agreed.StageBytes > 4<<20 || m.Validate() != nil {
				t.Errorf("agreed on %+v", agreed)
			}
		}
	})
}

// FuzzHints reads any hint.
func FuzzHints(f *testing.F) {
	for _, h := range [][2]string{{"fabric", "tcp"}, {"algorithm", "ring"}, {"mapped", "off"}, {"stage_bytes", "65536"},
		{"fabric.heartbeat", "1s"}, {"chunk_bytes", "-1"}, {"x", ""}} {
		f.Add(h[0], h[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := parseHints(map[string]string{name: value})
		if err == nil && (s.chunkBytes < 0 || s.stageBytes < 0) {
			t.Errorf("%s=%q: %+v", name, value, s)
		}
	})
}
