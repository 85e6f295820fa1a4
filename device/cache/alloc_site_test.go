package cache

import (
	"testing"

	"github.com/chorus-comms/chorus/config"
)

// TestCame tells of allocations where a program of another language has made them, also when the ring has come round.
func TestCame(t *testing.T) {
	SetPlaces(func(n uintptr) (Frame, bool) {
		return Frame{Name: "f", Filename: "train.py", Line: int(n)}, n < 1<<16
	})
	defer places.Store(nil)
	c, err := New(newFake(100<<20), Options{Allocator: config.DefaultAllocator()})
	must(t, err)
	early, err := c.Malloc(512, 0)
	must(t, err)
	c.Came(early, []uintptr{9}) // nothing is recorded yet
	must(t, c.RecordHistory(4, false))
	for i := range uintptr(3) {
		p, err := c.Malloc(1024, 0)
		must(t, err)
		c.Came(p, []uintptr{i + 1, 7})
		must(t, c.Free(p))
	}
	kept, err := c.Malloc(2048, 0)
	must(t, err)
	c.Came(kept, []uintptr{5})
	c.Came(kept+1, []uintptr{6}) // no allocation begins there
	s := c.Snapshot()
	var lines [][]int
	for _, e := range s.Traces[0] {
		line := []int{}
		for _, f := range e.Frames {
			line = append(line, f.Line)
		}
		lines = append(lines, line)
	}
	last := s.Traces[0][len(s.Traces[0])-2]
	if last.Action != "alloc" || len(last.Frames) != 1 || last.Frames[0] != (Frame{"f", "train.py", 5}) {
		t.Errorf("%+v", last)
	}
	if before := lines[0]; len(before) != 2 || before[0] != 3 || before[1] != 7 {
		t.Errorf("of what was freed: %v", lines)
	}
	for _, seg := range s.Segments {
		for _, b := range seg.Blocks {
			if want := map[bool]int{true: 1}[uintptr(b.Address) == kept]; len(b.Frames) != want {
				t.Errorf("%+v", b)
			}
		}
	}
}
