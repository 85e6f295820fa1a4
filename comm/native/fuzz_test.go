package native

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

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
	mine := agreedSettings{Fabric: "mem", Cores: 2, StageBytes: 4 << 20}
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
