package cache

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// action is what a trace entry tells of.
type action uint8

const (
	actionAlloc action = iota
	actionFreeRequested
	actionFreeCompleted
	actionSegmentAlloc
	actionSegmentFree
	actionSegmentMap
	actionSegmentUnmap
	actionSnapshot
	actionOutOfMemory
)

var actionNames = [...]string{"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
	"segment_map", "segment_unmap", "snapshot", "oom"}

// traceEvent is an entry of the history.
type traceEvent struct {
	action action
	addr   uint64 // of an oom: how much memory the driver has left
	size   int64
	stream Stream
	pool   PoolID
	time   time.Time
	frames []uintptr
}

// history is a ring of the last events.
type history struct {
	ring   []traceEvent // nil: nothing is recorded
	next   int
	full   bool
	stacks bool
}

// maxFrames limits a recorded stack.
const maxFrames = 32

// RecordHistory keeps the last n events for [Cache.Snapshot], and forgets those up to now; 0 ends that. With stacks
// it also keeps where each allocation, and each event, came from, at the cost of about a microsecond.
func (c *Cache) RecordHistory(n int, stacks bool) error {
	if n < 0 {
		return invalid("a history of %d events", n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = history{stacks: stacks && n > 0}
	if n > 0 {
		c.history.ring = make([]traceEvent, n)
	}
	return nil
}

// callers returns the stack of the caller of Malloc, or an empty one, in the given memory.
func (h *history) callers(frames []uintptr) []uintptr {
	if !h.stacks {
		return frames[:0]
	}
	frames = slices.Grow(frames[:0], maxFrames)[:maxFrames]
	return frames[:runtime.Callers(6, frames)] // Callers, callers, giveOut, malloc, take, Malloc
}

// places looks up the numbers that [Cache.Came] is given.
var places atomic.Pointer[func(n uintptr) (Frame, bool)]

// SetPlaces says what the numbers of places in programs of other languages stand for: [Cache.Came] is given them.
func SetPlaces(of func(n uintptr) (Frame, bool)) { places.Store(&of) }

// Came tells where a program of another language has made an allocation, for what is recorded from now on: numbers of
// places, the innermost first, which are less than any address of code. It does nothing while nothing is recorded.
func (c *Cache) Came(addr uintptr, from []uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.allocated.find(addr)
	if c.history.ring == nil || b == nil {
		return
	}
	b.frames = append(b.frames[:0], from...)
	if e := c.history.last(actionAlloc, addr); e != nil {
		e.frames = append(e.frames[:0], from...)
	}
}

// last returns the newest entry about an action at an address; nil if it was forgotten.
func (h *history) last(a action, addr uintptr) *traceEvent {
	for i := range h.ring {
		at := h.next - 1 - i
		if at < 0 {
			if !h.full {
				break
			}
			at += len(h.ring)
		}
		if e := &h.ring[at]; e.action == a && e.addr == uint64(addr) {
			return e
		}
	}
	return nil
}

func (h *history) add(a action, b *block, addr uintptr, size int64) {
	if h.ring == nil {
		return
	}
	e := h.push()
	e.action, e.addr, e.size, e.stream, e.time = a, uint64(addr), size, b.stream, time.Now()
	if b.pool.private != nil {
		e.pool = b.pool.private.id
	}
	e.frames = append(e.frames, b.frames...)
}

func (h *history) addOutOfMemory(free, size int64, s Stream) {
	if h.ring == nil {
		return
	}
	e := h.push()
	e.action, e.addr, e.size, e.stream, e.time = actionOutOfMemory, uint64(free), size, s, time.Now()
}

// push returns an entry to fill, which has the memory of one that is forgotten.
func (h *history) push() *traceEvent {
	e := &h.ring[h.next]
	*e = traceEvent{frames: e.frames[:0]}
	if h.next++; h.next == len(h.ring) {
		h.next, h.full = 0, true
	}
	return e
}

// events returns the entries, the oldest first.
func (h *history) events() []traceEvent {
	if !h.full {
		return h.ring[:h.next]
	}
	return slices.Concat(h.ring[h.next:], h.ring[:h.next])
}
