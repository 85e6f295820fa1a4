package record

import (
	"fmt"
	"time"
)

// Doing says in a line what the recorder's rank does: which operation it's in, of whichever of its communicators, or
// which was its last, and where the program called it. It takes no lock that an operation holds.
func (r *Recorder) Doing() string {
	if r == nil {
		return ""
	}
	place, line := placer{}, calibrate()
	var best *cell
	var in *Recorder
	for _, c := range r.rank.recorders() {
		for s := range c.all() {
			if best == nil || s.later(best) {
				best, in = &s, c
			}
		}
	}
	if best == nil {
		return "elsewhere, and has called nothing yet"
	}
	e := in.entry(best, line, nil, place)
	what, at := fmt.Sprintf("%s of %q", Numbered(&e, e.Seq), in.name), ""
	if s := CallSite(e.Frames); s != "" {
		at = ", at " + s
	}
	ago := func(tick uint64) time.Duration {
		return max(0, time.Since(time.Unix(0, line.at(tick)))).Round(time.Millisecond)
	}
	switch {
	case best.ended == 0:
		return fmt.Sprintf("in %s%s, for %v", what, at, ago(best.issued))
	case best.ended > untimed:
		return fmt.Sprintf("elsewhere, after %s%s, which ended %v ago", what, at, ago(best.ended))
	default:
		return fmt.Sprintf("elsewhere, after %s%s, which began %v ago", what, at, ago(best.issued))
	}
}

// later reports whether a tells more of what a rank does now than b: operations under way before those that are queued,
// these before those that are done, and of each the latest.
func (a *cell) later(b *cell) bool {
	order := func(s *cell) int {
		switch {
		case s.ended != 0:
			return 0
		case s.started == 0:
			return 1
		default:
			return 2
		}
	}
	if x, y := order(a), order(b); x != y {
		return x > y
	}
	return a.issued > b.issued
}

// all yields the operations that are kept, first those of the lane's owner, each sort oldest first.
func (r *Recorder) all() func(func(cell) bool) {
	return func(yield func(cell) bool) {
		l := &r.own
		last := load(&l.next)
		done := load(&l.done) // after that: all but the last of those are over
		kept := uint64(len(l.records) - 1)
		for id := max(last, kept) - kept + 1; id <= last; id++ {
			if s, ok := l.load(id, done); ok && !yield(s) {
				return
			}
		}
		g := r.sharing()
		last, kept = load(&g.next), uint64(len(g.cells))
		for id := max(last, kept) - kept + 1; id <= last; id++ {
			if s, ok := g.at(id).load(id | shared); ok && !yield(s) {
				return
			}
		}
	}
}
