package main

import "time"

// A ration divides the time until a deadline among what is still to be measured, by weights. Time that one leaves over
// goes to the others, and time that one overruns is taken from all others alike.
type ration struct {
	deadline time.Time
	left     float64 // weight that waits for its time
}

// next takes the share of a weight, which must be among those that are left, and returns when it's over.
func (r *ration) next(weight float64) time.Time {
	now := time.Now()
	part := 1.0
	if r.left > weight {
		part = weight / r.left
	}
	r.left -= weight
	return now.Add(time.Duration(part * float64(r.deadline.Sub(now))))
}

// weight is about how many seconds a round of a size takes: the start and the clock of each burst, and the bytes that
// are written, moved and compared.
func (h *harness) weight(m *measure, op string, size int) float64 {
	lines := len(m.ours)
	for i := range settings {
		if s := &settings[i]; m.takesPart(s) && h.has(s.peer().name) {
			lines++
		}
	}
	if size < longBytes { // beyond, one form
		lines *= len(forms(op))
	}
	return float64(lines*m.ranks) / 2 * (burstSeconds + float64(size)*byteSeconds)
}

// As measured: 8 ms for a burst of 1 KiB, a second for one of 64 MiB, of two ranks.
const (
	burstSeconds = 8e-3
	byteSeconds  = 15e-9
)

// weigh puts all that is asked for into the ration.
func (h *harness) weigh(asked []*measure) {
	for _, m := range asked {
		for _, op := range m.ops {
			for _, size := range between(m.sizes, h.min, h.max) {
				h.ration.left += h.weight(m, op, size)
			}
		}
	}
}
