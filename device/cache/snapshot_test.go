package cache

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
)

var snapshotFile = flag.String("snapshot", "", "file into which TestSnapshot writes the snapshot of a small workload")

// smallStory serves the beginning of a workload and returns the snapshot.
func smallStory(t *testing.T) *Snapshot {
	c := open(t, newFake(1<<40))
	must(t, c.RecordHistory(10_000, *snapshotFile == ""))
	w := workloads()[2]
	w.requests = w.requests[:260]
	w.run(func(n int64) uintptr { return malloc(t, c, n, 0) }, func(p uintptr) { must(t, c.Free(p)) },
		func() int64 { return 0 })
	p := malloc(t, c, 100_000, 1)
	must(t, c.RecordStream(p, 2))
	must(t, c.Free(p))
	malloc(t, c, 3<<20, 1)
	return c.Snapshot()
}

func TestSnapshot(t *testing.T) {
	s := smallStory(t)
	var b bytes.Buffer
	must(t, s.Write(&b))
	if *snapshotFile != "" {
		must(t, os.WriteFile(*snapshotFile, b.Bytes(), 0o666))
	}
	back, err := ReadSnapshot(bytes.NewReader(b.Bytes()))
	must(t, err)
	s.Settings, back.Settings = nil, nil // numbers of any type
	if !reflect.DeepEqual(s, back) {
		t.Error("written and read it is another")
	}
	if m := Merge(s, &Snapshot{Segments: []SegmentInfo{{Device: 1}}, Traces: [][]TraceEntry{{},
		{{Action: "oom"}}}}); len(m.Traces) != 2 || len(m.Segments) != len(s.Segments)+1 ||
		len(m.Traces[0]) != len(s.Traces[0]) {
		t.Error("merged wrongly")
	}
	var states []string
	for _, seg := range s.Segments {
		for _, b := range seg.Blocks {
			states = append(states, b.State)
			if b.State == StateAllocated && *snapshotFile == "" && (len(b.Frames) == 0 || !strings.Contains(b.Frames[0].Name,
				"malloc")) {
				t.Errorf("allocated by %+v", b.Frames)
			}
		}
	}
	for _, want := range []string{StateAllocated, StateAwaitingFree, StateInactive} {
		if !strings.Contains(strings.Join(states, " "), want) {
			t.Errorf("no block is %s", want)
		}
	}
}

// TestTorchReadsSnapshot hands a snapshot to PyTorch's own tools, which check that its sums are right.
func TestTorchReadsSnapshot(t *testing.T) {
	s := smallStory(t)
	var b bytes.Buffer
	must(t, s.Write(&b))
	cmd := testutil.PythonCommand(t, `
import json, sys
from torch.cuda import _memory_viz as viz
s = json.load(sys.stdin)
summary = viz.segsum(s)
trace = viz.trace(s)
lines = []
viz.memory(s, lines.append)
viz.segments(s, lines.append)
page = viz.trace_plot(s)
json.dump({"summary": summary, "trace": len(trace), "stacks": lines, "page": len(page)}, sys.stdout)
`)
	cmd.Stdin, cmd.Stderr = &b, os.Stderr
	out, err := cmd.Output()
	must(t, err)
	var got struct {
		Summary     string
		Trace, Page int
		Stacks      []string
	}
	must(t, json.Unmarshal(out, &got))
	for _, want := range []string{"segments: ", "total_reserved: ", "stream_1"} {
		if !strings.Contains(got.Summary+strings.Join(got.Stacks, ""), want) {
			t.Errorf("no %q in PyTorch's summary\n%s", want, got.Summary)
		}
	}
	if got.Trace == 0 || got.Page == 0 || !strings.Contains(got.Stacks[0], "smallStory") {
		t.Errorf("%d characters of trace, %d of page, stacks %.300s", got.Trace, got.Page, got.Stacks[0])
	}
}
