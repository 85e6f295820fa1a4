package main

import (
	"bytes"
	"os"
	"reflect"
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
}

// TestPages demands that the tables, sentences and the picture of README.md and the pages are those of one measurement.
func TestPages(t *testing.T) {
	files, err := pagesOf("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Fatalf("%d files", len(files))
	}
	for path, want := range files {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s isn't what docs/pytorch.json says: go run ./cmd/internal/bench/compare pages --runs 0 (%v)", path, err)
		}
	}
}

// TestMedians wants each figure of a record to be the median of the runs'.
func TestMedians(t *testing.T) {
	row := func(us float64) []pythonRow {
		return []pythonRow{{"collectives", "barrier", 0, map[string]float64{"gloo": us}}}
	}
	got := medianRows(4, [][]pythonRow{row(1000.26), row(2), row(3.14159)})
	if want := []recordRow{{4, "barrier", 0, map[string]float64{"gloo": 3.14}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	for x, want := range map[float64]float64{1234.56: 1235, 123.4: 123, 12.34: 12.3, 0.12345: 0.123, 0: 0} {
		if got := digits3(x); got != want {
			t.Errorf("digits3(%v) = %v", x, got)
		}
	}
}
