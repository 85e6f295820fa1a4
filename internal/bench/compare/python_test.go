package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPythonVerdicts(t *testing.T) {
	rows := []pythonRow{
		{"collectives", "all_reduce", mib, map[string]float64{"gloo": 100, "ordinary": 20, "shared": 4}},
		{"collectives", "all_reduce", 4 * mib, map[string]float64{"gloo": 100, "ordinary": 5, "shared": 5}},
		{"collectives", "all_reduce", 4, map[string]float64{"gloo": 100, "ordinary": 4}},
		{"collectives", "barrier", 0, map[string]float64{"gloo": 100, "ordinary": 10}},
		{"peers", "all_reduce", mib, map[string]float64{"vllm": 10, "deepspeed": 8, "ordinary": 8, "shared": 5}},
		{"ddp", "step", 0, map[string]float64{"compute": 90, "gloo": 10, "ordinary": 1}},
		{"inference", "step", 64 * kib, map[string]float64{"gloo": 100, "ordinary": 20, "shared": 8}},
	}
	for _, x := range []struct{ target, want string }{
		{"all_reduce, `chorus.empty`, 256 KiB", "20.00 at all_reduce of 4 MiB, mean 22.36 | PASS"},
		{"all_reduce, 256 KiB", "5.00 at all_reduce of 1 MiB, mean 10.00 | PASS"},
		{"all_reduce and broadcast", "10.00 at barrier of 0 B, mean 15.81 | FAIL"},
		{"all_reduce, 16 KiB to 16 MiB", "1.00 at all_reduce of 1 MiB | PASS"},
		{"all_reduce, `chorus.empty`, 16 KiB", "1.60 at all_reduce of 1 MiB | FAIL"},
		{"communication's share of a DDP step, by", "9.10 at step of 0 B | PASS"},
		{"all_reduce in a tensor-parallel", "5.00 at step of 64 KiB | FAIL"},
		{"the same, `chorus.empty`", "12.50 at step of 64 KiB | PASS"},
		{"10 us by", " | SKIPPED (not measured)"},
	} {
		var b strings.Builder
		writePythonVerdicts(&b, rows)
		found := false
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, "| "+x.target) {
				found = true
				if !strings.Contains(line, x.want) {
					t.Errorf("%s\nwant %q", line, x.want)
				}
			}
		}
		if !found {
			t.Errorf("no line for %q", x.target)
		}
	}
	path := filepath.Join(t.TempDir(), "p.svg")
	if err := writePythonPlot(path, rows); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), "all-reduce, chorus.empty") {
		t.Errorf("the plot: %v\n%s", err, data)
	}
}
