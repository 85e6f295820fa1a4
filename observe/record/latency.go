package record

import "slices"

// LatencyBounds are the upper ends of the intervals in which durations are counted, in seconds.
var LatencyBounds = [...]float64{1e-6, 4e-6, 16e-6, 64e-6, 256e-6, 1e-3, 4e-3, 16e-3, 64e-3, 0.25, 1, 4, 16}

// Latency counts how long operations of one kind have taken: those whose end was timed and that the record still held
// at a look.
type Latency struct {
	Op     string                         `json:"op"`
	Counts [len(LatencyBounds) + 1]uint64 `json:"counts"` // by interval; the last has no end
	Sum    float64                        `json:"sum_s"`
}

// latencies are a recorder's, which grow at each look; its cold part's lock guards them.
type latencies struct {
	all  []Latency
	seen uint64 // the last end that is counted, in ticks
}

// look counts the operations that have ended since the last look. The operations on the way pay nothing for it.
func (h *latencies) look(r *Recorder, l timeline, place placer) []Latency {
	last := h.seen
	for s := range r.all() {
		if s.ended <= max(h.seen, untimed) || s.started == 0 || s.ended < s.started || Status(s.result&0xff) != Done {
			continue
		}
		last = max(last, s.ended)
		op := r.entry(&s, l, nil, place).Chorus.Op
		i := slices.IndexFunc(h.all, func(x Latency) bool { return x.Op == op })
		if i < 0 {
			i = len(h.all)
			h.all = append(h.all, Latency{Op: op})
		}
		took := float64(s.ended-s.started) * l.ns / 1e9
		at, _ := slices.BinarySearch(LatencyBounds[:], took)
		h.all[i].Counts[at]++
		h.all[i].Sum += took
	}
	h.seen = last
	return slices.Clone(h.all)
}
