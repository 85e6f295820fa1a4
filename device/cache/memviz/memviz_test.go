package memviz

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device/cache"
)

func entry(action string, addr uint64, size int64) cache.TraceEntry {
	return cache.TraceEntry{Action: action, Addr: addr, Size: size, TimeMicros: int64(addr)}
}

// story is a snapshot with everything in it: a segment and a block older than the trace, one that goes, parts that are
// mapped and unmapped, a free that waits, an oom.
func story() *cache.Snapshot {
	const mib = 1 << 20
	return &cache.Snapshot{
		Segments: []cache.SegmentInfo{
			{Address: 1 << 30, TotalSize: 2 * mib, Blocks: []cache.BlockInfo{
				{Address: 1 << 30, Size: mib, Requested: mib, State: cache.StateAllocated, Frames: []cache.Frame{{Name: "older<T>",
					Filename: "a.go", Line: 3}}},
				{Address: 1<<30 + mib, Size: mib, State: cache.StateInactive}}},
			{Address: 5 << 30, TotalSize: 20 * mib, Expandable: true},
			{Device: 1, Address: 9 << 30, TotalSize: 2 * mib},
		},
		Traces: [][]cache.TraceEntry{{
			entry("segment_alloc", 3<<30, 20*mib),
			entry("alloc", 3<<30, 5*mib),
			entry("free_requested", 3<<30, 5*mib),
			entry("oom", 0, 100*mib),
			entry("free_completed", 3<<30, 5*mib),
			entry("segment_free", 3<<30, 20*mib),
			entry("segment_map", 5<<30, 40*mib),
			entry("segment_unmap", 5<<30+20*mib, 20*mib),
			entry("free_requested", 1<<30+mib, mib),
			entry("free_completed", 1<<30+mib, mib),
		}},
	}
}

func TestTimeline(t *testing.T) {
	tl, err := newTimeline(story(), 0)
	if err != nil {
		t.Fatal(err)
	}
	const mib = 1 << 20
	wantHeld := []int64{22, 22, 22, 22, 22, 2, 42, 22, 22, 22, 22}
	wantUsed := []int64{2, 7, 7, 7, 2, 2, 2, 2, 2, 1, 1}
	for i := range wantHeld {
		if tl.heldBytes[i] != wantHeld[i]*mib || tl.allocBytes[i] != wantUsed[i]*mib {
			t.Errorf("after event %d: %d MiB reserved and %d allocated, want %d and %d", i, tl.heldBytes[i]/mib,
				tl.allocBytes[i]/mib, wantHeld[i], wantUsed[i])
		}
	}
	if len(tl.outOfMemory) != 1 {
		t.Error(tl.outOfMemory)
	}
}

func TestDraw(t *testing.T) {
	for _, o := range []Options{{}, {Time: true}} {
		var b bytes.Buffer
		if err := Draw(&b, story(), o); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
			tok, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, &b)
			}
			if e, ok := tok.(xml.StartElement); ok {
				count[e.Name.Local]++
			}
		}
		// The background, four reserved parts, three allocations, one of them in two.
		if count["polyline"] != 2 || count["rect"] != 1+4+4 {
			t.Errorf("%v", count)
		}
		for _, want := range []string{"older&lt;T&gt; (a.go:3)", "still allocated", "waiting for other streams",
			"out of memory", "10 events, 3 allocations"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in the picture", want)
			}
		}
	}
	var b bytes.Buffer
	if err := Draw(&b, &cache.Snapshot{}, Options{}); err != nil {
		t.Error("an empty snapshot:", err)
	}
	if err := Draw(&b, story(), Options{Device: 1}); err == nil || !strings.Contains(err.Error(), "no device 1") {
		t.Error(err)
	}
	bad := story()
	bad.Traces[0][0].Size = -1
	if err := Draw(&b, bad, Options{}); err == nil {
		t.Error("a negative size is drawn")
	}
}

func FuzzDraw(f *testing.F) {
	var b bytes.Buffer
	if err := story().Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"segments":[{"address":1,"total_size":5,"blocks":[{"address":3,"state":"active_allocated"}]}],"device_traces":[[]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := cache.ReadSnapshot(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Draw(&b, s, Options{}); err != nil {
			return
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}
