package comm_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/plan/calibration"
	"github.com/chorus-comms/chorus/tensor"
)

// calibrated writes a calibration for worlds of 2 and returns its path.
func calibrated(t *testing.T, change func(*plan.Machine)) string {
	t.Helper()
	m := plan.DefaultMachine()
	change(&m)
	path := filepath.Join(t.TempDir(), "calibration.json")
	if err := calibration.Store(path, calibration.Entry{Ranks: 2, Machine: m}); err != nil {
		t.Fatal(err)
	}
	return path
}

// logs is a buffer that several ranks may log into.
type logs struct {
	sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.Buffer.Write(p)
}

// chosen opens a world of two ranks with a calibration for each, all-reduces a vector of 64 KiB over TCP, and returns
// the algorithm that each rank used, and what was logged.
func chosen(t *testing.T, files [2]string, opts ...comm.Option) (algorithms [2]string, logged string) {
	t.Helper()
	var log logs
	comms := open(t, 2, func(rank int) []comm.NewOption {
		return []comm.NewOption{comm.WithFabric("tcp"), comm.WithHints(map[string]string{"calibration": files[rank]}),
			comm.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}
	})
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx := context.Background()
			defer c.Finalize(ctx)
			c.RegisterCompletionHook(func(i comm.OpInfo, _ error) { algorithms[r] = i.Algorithm })
			x := make([]float32, 16<<10)
			for i := range x {
				x[i] = float32(i % 100 * (r + 1))
			}
			if err := c.AllReduce(ctx, tensor.Of(x), comm.Sum, opts...); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			for i := range x {
				if want := float32(i % 100 * 3); x[i] != want {
					t.Errorf("rank %d: element %d is %v, want %v", r, i, x[i], want)
					break
				}
			}
		})
	}
	wg.Wait()
	return algorithms, log.String()
}

// TestCalibrationChooses lets measured values decide: where a message takes long, one with everything in it is best,
// where adding does, each rank adds half.
func TestCalibrationChooses(t *testing.T) {
	slowLink := calibrated(t, func(m *plan.Machine) { m.Remote.Latency, m.Reduce = 1, 1e12 })
	slowSums := calibrated(t, func(m *plan.Machine) { m.Remote.Latency, m.Reduce = 1e-8, 1e5 })
	same := func(name string) [2]string { return [2]string{name, name} }
	if got, log := chosen(t, same(slowLink)); got != same("doubling") || log != "" {
		t.Errorf("on a slow link: %v; %s", got, log)
	}
	if got, log := chosen(t, same(slowSums)); got[0] == "doubling" || got[0] != got[1] || log != "" {
		t.Errorf("with slow sums: %v; %s", got, log)
	}
	// Rank 0's counts, whatever others have.
	for _, others := range []string{slowSums, "off", filepath.Join(t.TempDir(), "none")} {
		if got, log := chosen(t, [2]string{slowLink, others}); got != same("doubling") || log != "" {
			t.Errorf("rank 1 has %s: %v; %s", others, got, log)
		}
	}
	if got, _ := chosen(t, [2]string{slowSums, slowLink}); got[0] == "doubling" || got[0] != got[1] {
		t.Errorf("rank 1 has the slow link: %v", got)
	}
	if got, _ := chosen(t, same(slowSums), comm.Algorithm("doubling")); got != same("doubling") {
		t.Errorf("a hint asks for doubling: %v", got)
	}
}

// TestCalibrationUnusable demands a warning, and the default choice, where a calibration can't be used.
func TestCalibrationUnusable(t *testing.T) {
	want, _ := chosen(t, [2]string{"off", "off"})
	dir := t.TempDir()
	old, foreign, none := filepath.Join(dir, "old"), filepath.Join(dir, "foreign"), filepath.Join(dir, "none")
	for path, text := range map[string]string{old: `{"version":0}`, foreign: "\x00\xff"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{old: "version 0 of the format", foreign: "not a calibration",
		none: "no such file"} {
		got, log := chosen(t, [2]string{path, path})
		if got != want {
			t.Errorf("%s: %v, want %v as without it", says, got, want)
		}
		if !strings.Contains(log, "level=WARN") || !strings.Contains(log, path) || !strings.Contains(log, says) ||
			strings.Count(log, "\n") != 1 {
			t.Errorf("want one warning that names %s and says %q, got: %s", path, says, log)
		}
	}
}
