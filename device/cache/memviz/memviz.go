// Package memviz draws snapshots of caching allocators as pictures: addresses over time.
//
//	s, err := cache.ReadSnapshot(file)
//	err = memviz.Draw(w, s, memviz.Options{Device: 0})
//
// The events of the trace run from left to right. At the top, two lines show how many bytes were reserved and how many
// allocated. Below, every allocation is a rectangle at its address, as high as it is large, from its beginning to its
// end. It is pale from when it was freed until other streams were done with it. Reserved memory is gray behind the
// rectangles, so that fragmentation shows as gray between them. Colors are streams. Red lines mark where memory ran
// out.
//
// Allocations from before the begin of the trace are drawn from the left edge on, if the trace or the snapshot's blocks
// show them.
package memviz

import (
	"fmt"
	"slices"

	"github.com/chorus-comms/chorus/device/cache"
)

// span is a part of the address space for some time. Times are numbers of events.
type span struct {
	addr       uint64
	size       int64
	from, to   int
	freed      int // when it was asked to be freed; to if that is unknown
	stream     cache.Stream
	where      string
	stillThere bool
}

func (s *span) end() uint64 { return s.addr + uint64(s.size) }

// timeline is what is drawn.
type timeline struct {
	events      int
	times       []int64 // in microseconds, of each event
	reserved    []span
	allocated   []span
	outOfMemory []int
	allocBytes  []int64 // after each event
	heldBytes   []int64
}

// newTimeline replays the trace of a device.
func newTimeline(s *cache.Snapshot, device int) (*timeline, error) {
	if device < 0 || device >= max(1, len(s.Traces)) {
		return nil, fmt.Errorf("memviz: no device %d in the snapshot of %d", device, len(s.Traces))
	}
	var trace []cache.TraceEntry
	if len(s.Traces) > 0 {
		trace = s.Traces[device]
	}
	if err := check(s, trace); err != nil {
		return nil, err
	}
	t := &timeline{events: len(trace)}
	var open []span // reserved now
	live := map[uint64]span{}
	for i, e := range trace {
		t.times = append(t.times, e.TimeMicros)
		switch e.Action {
		case "segment_alloc", "segment_map":
			open = append(open, span{addr: e.Addr, size: e.Size, from: i, stream: e.Stream})
		case "segment_free", "segment_unmap":
			open = t.close(open, e.Addr, e.Size, i)
		case "alloc":
			live[e.Addr] = span{addr: e.Addr, size: e.Size, from: i, freed: -1, stream: e.Stream, where: place(e.Frames)}
		case "free_requested":
			if a, ok := live[e.Addr]; ok {
				a.freed = i
				live[e.Addr] = a
			} else {
				live[e.Addr] = span{addr: e.Addr, size: e.Size, freed: i, stream: e.Stream}
			}
		case "free_completed":
			a, ok := live[e.Addr]
			if !ok {
				a = span{addr: e.Addr, size: e.Size, freed: 0, stream: e.Stream}
			}
			delete(live, e.Addr)
			a.to = i
			t.allocated = append(t.allocated, a)
		case "oom":
			t.outOfMemory = append(t.outOfMemory, i)
		}
	}
	t.finish(s, device, open, live)
	slices.SortFunc(t.allocated, byAddress)
	slices.SortFunc(t.reserved, byAddress)
	t.allocBytes = sums(t.allocated, t.events)
	t.heldBytes = sums(t.reserved, t.events)
	return t, nil
}

// check refuses sizes that no memory has.
func check(s *cache.Snapshot, trace []cache.TraceEntry) error {
	bad := func(addr uint64, size int64) bool { return size < 0 || addr+uint64(size) < addr }
	for i, e := range trace {
		if bad(e.Addr, e.Size) {
			return fmt.Errorf("memviz: event %d has %d bytes at %#x", i, e.Size, e.Addr)
		}
	}
	for _, seg := range s.Segments {
		if bad(seg.Address, seg.TotalSize) {
			return fmt.Errorf("memviz: a segment has %d bytes at %#x", seg.TotalSize, seg.Address)
		}
		for _, b := range seg.Blocks {
			if bad(b.Address, b.Requested) {
				return fmt.Errorf("memviz: a block has %d bytes at %#x", b.Requested, b.Address)
			}
		}
	}
	return nil
}

func byAddress(a, b span) int {
	switch {
	case a.addr != b.addr && a.addr < b.addr:
		return -1
	case a.addr != b.addr:
		return 1
	}
	return a.from - b.from
}

// close ends what is reserved in a range, which may be parts of some spans or several.
func (t *timeline) close(open []span, addr uint64, size int64, now int) []span {
	end := addr + uint64(size)
	var kept []span
	covered := addr
	slices.SortFunc(open, byAddress)
	for _, s := range open {
		lo, hi := max(s.addr, addr), min(s.end(), end)
		if lo >= hi {
			kept = append(kept, s)
			continue
		}
		if covered < lo { // reserved before the trace begins
			t.reserved = append(t.reserved, span{addr: covered, size: int64(lo - covered), to: now})
		}
		covered = hi
		part := func(from, to uint64) span {
			p := s
			p.addr, p.size = from, int64(to-from)
			return p
		}
		gone := part(lo, hi)
		gone.to = now
		t.reserved = append(t.reserved, gone)
		if s.addr < lo {
			kept = append(kept, part(s.addr, lo))
		}
		if hi < s.end() {
			kept = append(kept, part(hi, s.end()))
		}
	}
	if covered < end {
		t.reserved = append(t.reserved, span{addr: covered, size: int64(end - covered), to: now})
	}
	return kept
}

// finish adds what is still there: what the trace left open, and what only the snapshot's segments tell of.
func (t *timeline) finish(s *cache.Snapshot, device int, open []span, live map[uint64]span) {
	for _, seg := range s.Segments {
		if seg.Device != device {
			continue
		}
		at := seg.Address
		slices.SortFunc(open, byAddress)
		for _, o := range open {
			if o.addr > at && o.addr < seg.Address+uint64(seg.TotalSize) {
				t.reserved = append(t.reserved, span{addr: at, size: int64(o.addr - at), to: t.events})
			}
			if o.addr >= at && o.addr < seg.Address+uint64(seg.TotalSize) {
				at = o.end()
			}
		}
		if end := seg.Address + uint64(seg.TotalSize); at < end {
			t.reserved = append(t.reserved, span{addr: at, size: int64(end - at), to: t.events, stream: seg.Stream})
		}
		for _, b := range seg.Blocks {
			if _, known := live[b.Address]; !known && b.State != cache.StateInactive {
				live[b.Address] = span{addr: b.Address, size: b.Requested, freed: -1, stream: seg.Stream, where: place(b.Frames)}
			}
		}
	}
	for _, o := range open {
		o.to = t.events
		t.reserved = append(t.reserved, o)
	}
	for _, a := range live {
		a.to, a.stillThere = t.events, true
		if a.freed < 0 {
			a.freed = t.events
		}
		t.allocated = append(t.allocated, a)
	}
}

// sums returns, for each event, the bytes of the spans that are there after it.
func sums(spans []span, events int) []int64 {
	change := make([]int64, events+1)
	for _, s := range spans {
		change[s.from] += s.size
		if s.to < events {
			change[s.to] -= s.size
		}
	}
	for i := 1; i <= events; i++ {
		change[i] += change[i-1]
	}
	return change
}

// place says in short where something was allocated.
func place(frames []cache.Frame) string {
	if len(frames) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s:%d)", frames[0].Name, frames[0].Filename, frames[0].Line)
}
