package cache

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/chorus-comms/chorus/config"
)

// Snapshot is the state of caches and what they did, in the structure of torch.cuda.memory._snapshot(). Written as
// JSON, it can be read by PyTorch's torch.cuda._memory_viz, and by `chorus memviz`.
type Snapshot struct {
	Segments []SegmentInfo  `json:"segments"`
	Traces   [][]TraceEntry `json:"device_traces"` // by device, the oldest entry first
	Settings map[string]any `json:"allocator_settings"`
}

// SegmentInfo is a piece of the driver's memory; of an expandable segment, each mapped part is one.
type SegmentInfo struct {
	Device        int         `json:"device"`
	Address       uint64      `json:"address"`
	TotalSize     int64       `json:"total_size"`
	AllocatedSize int64       `json:"allocated_size"`
	ActiveSize    int64       `json:"active_size"`
	RequestedSize int64       `json:"requested_size"`
	Stream        Stream      `json:"stream"`
	Type          string      `json:"segment_type"` // small or large
	Pool          PoolID      `json:"segment_pool_id"`
	Expandable    bool        `json:"is_expandable"`
	Frames        []Frame     `json:"frames"`
	Blocks        []BlockInfo `json:"blocks"`
}

// The states of a block.
const (
	StateAllocated    = "active_allocated"
	StateAwaitingFree = "active_awaiting_free" // freed, but used by another stream
	StateInactive     = "inactive"
)

// BlockInfo is a part of a segment.
type BlockInfo struct {
	Address   uint64  `json:"address"`
	Size      int64   `json:"size"`
	Requested int64   `json:"requested_size"`
	State     string  `json:"state"`
	Frames    []Frame `json:"frames"`
}

// Frame is a place in the code.
type Frame struct {
	Name     string `json:"name"`
	Filename string `json:"filename"`
	Line     int    `json:"line"`
}

// TraceEntry is an event. Action is alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map,
// segment_unmap, snapshot or oom.
type TraceEntry struct {
	Action     string  `json:"action"`
	Addr       uint64  `json:"addr"`
	DeviceFree uint64  `json:"device_free"` // of an oom, which has no address
	Size       int64   `json:"size"`
	Stream     Stream  `json:"stream"`
	Pool       PoolID  `json:"pool_id"`
	TimeMicros int64   `json:"time_us"` // since 1970
	Frames     []Frame `json:"frames"`
}

// Snapshot returns the state of the cache and, if [Cache.RecordHistory] was called, what it did.
func (c *Cache) Snapshot() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Snapshot{Segments: []SegmentInfo{}, Traces: make([][]TraceEntry, c.opts.Device+1), Settings: c.settings()}
	for i := range s.Traces {
		s.Traces[i] = []TraceEntry{}
	}
	for _, seg := range c.segments {
		for b := seg.first; b != nil; b = b.next {
			if b.mapped {
				if b.prev == nil || !b.prev.mapped {
					s.Segments = append(s.Segments, c.describe(b))
				}
				s.Segments[len(s.Segments)-1].add(b)
			}
		}
	}
	if c.history.ring != nil {
		e := c.history.push()
		e.action, e.time = actionSnapshot, time.Now()
	}
	for _, e := range c.history.events() {
		t := TraceEntry{Action: actionNames[e.action], Addr: e.addr, Size: e.size, Stream: e.stream, Pool: e.pool,
			TimeMicros: e.time.UnixMicro(), Frames: framesOf(e.frames)}
		if e.action == actionOutOfMemory {
			t.Addr, t.DeviceFree = 0, e.addr
		}
		s.Traces[c.opts.Device] = append(s.Traces[c.opts.Device], t)
	}
	return s
}

// describe begins the description of the segment, or mapped part of one, that begins with a block.
func (c *Cache) describe(b *block) SegmentInfo {
	s := SegmentInfo{Device: c.opts.Device, Address: uint64(b.addr), Stream: b.stream, Type: "large",
		Expandable: b.seg.expandable, Frames: []Frame{}}
	if b.pool.small {
		s.Type = "small"
	}
	if b.pool.private != nil {
		s.Pool = b.pool.private.id
	}
	return s
}

func (s *SegmentInfo) add(b *block) {
	i := BlockInfo{Address: uint64(b.addr), Size: b.size, Requested: b.requested, State: StateInactive, Frames: []Frame{}}
	s.TotalSize += b.size
	if b.allocated {
		i.State = StateAllocated
		s.AllocatedSize += b.size
	} else if !b.idle() {
		i.State = StateAwaitingFree
	}
	if !b.idle() {
		s.ActiveSize += b.size
		s.RequestedSize += b.requested
		i.Frames = framesOf(b.frames)
	}
	s.Blocks = append(s.Blocks, i)
}

func framesOf(pcs []uintptr) []Frame {
	list := []Frame{}
	of := places.Load()
	for i, pc := range pcs {
		f, is := Frame{}, false
		if of != nil {
			f, is = (*of)(pc)
		}
		if !is {
			return appendCode(list, pcs[i:])
		}
		list = append(list, f)
	}
	return list
}

// appendCode adds the frames of this program's addresses.
func appendCode(list []Frame, pcs []uintptr) []Frame {
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		list = append(list, Frame{Name: f.Function, Filename: f.File, Line: f.Line})
		if !more {
			return list
		}
	}
}

// settings are the options under the names that PyTorch echoes.
func (c *Cache) settings() map[string]any {
	o := c.opts
	maxSplit := o.MaxSplitSize
	if maxSplit == config.Unlimited {
		maxSplit = -1
	}
	divisions := map[string]int{}
	for i, d := range o.RoundupDivisions {
		divisions[fmt.Sprint(1<<i)] = d
	}
	return map[string]any{
		"max_split_size": maxSplit, "garbage_collection_threshold": o.GarbageThreshold, "expandable_segments": o.Expandable,
		"roundup_power2_divisions": divisions, "max_non_split_rounding": o.MaxNonSplitRounding,
		"large_segment_size":          o.LargeSegment,
		"per_process_memory_fraction": o.Fraction, "release_lock_on_cudamalloc": o.UnlockForDriver,
	}
}

// Merge joins snapshots of the caches of several devices.
func Merge(snapshots ...*Snapshot) *Snapshot {
	all := &Snapshot{Segments: []SegmentInfo{}, Traces: [][]TraceEntry{}}
	for _, s := range snapshots {
		all.Segments = append(all.Segments, s.Segments...)
		for d, trace := range s.Traces {
			for len(all.Traces) <= d {
				all.Traces = append(all.Traces, []TraceEntry{})
			}
			all.Traces[d] = append(all.Traces[d], trace...)
		}
		all.Settings = s.Settings
	}
	return all
}

// Write writes the snapshot as JSON.
func (s *Snapshot) Write(w io.Writer) error { return json.NewEncoder(w).Encode(s) }

// ReadSnapshot reads what [Snapshot.Write] wrote, or json.dump of what PyTorch made.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	s := new(Snapshot)
	if err := json.NewDecoder(r).Decode(s); err != nil {
		return nil, fmt.Errorf("cache: not a memory snapshot in JSON: %w", err)
	}
	return s, nil
}
