package main

import (
	"maps"
	"slices"
)

// cell is what bursts are pooled by: like is compared with like.
type cell struct {
	measure, where, op string
	bytes              int
}

// figure is a series' result in a cell.
type figure struct {
	us        float64 // median of the bursts' medians, in the faster form
	inPlace   bool    // that form
	bursts    int     // of both forms
	byRound   map[int]float64
	limitUS   float64 // median; 0 without one
	algorithm string  // the last burst's
}

// pool holds the figures of all series in all cells.
type pool map[cell]map[string]figure

// poolBursts takes medians over the bursts that count.
func poolBursts(bursts []burst) pool {
	type key struct {
		cell
		series  string
		inPlace bool
	}
	groups := map[key][]*burst{}
	for i := range bursts {
		b := &bursts[i]
		if !b.counts() {
			continue
		}
		k := key{cell{b.Measure, b.Where, b.Op, b.Bytes}, b.Series, b.InPlace}
		groups[k] = append(groups[k], b)
	}
	p := pool{}
	for k, group := range groups {
		f := figure{inPlace: k.inPlace, bursts: len(group), byRound: map[int]float64{}}
		var us, limits []float64
		for _, b := range group {
			us = append(us, b.US)
			f.byRound[b.Round] = b.US
			f.algorithm = b.Algorithm
			if b.LimitUS > 0 {
				limits = append(limits, b.LimitUS)
			}
		}
		f.us, f.limitUS = median(us), median(limits)
		if p[k.cell] == nil {
			p[k.cell] = map[string]figure{}
		}
		other, ok := p[k.cell][k.series]
		f.bursts += other.bursts
		if ok && other.us <= f.us {
			other.bursts = f.bursts
			f = other
		}
		p[k.cell][k.series] = f
	}
	return p
}

// best returns the fastest of the series that match: the envelope at one size.
func (p pool) best(c cell, match func(series string) bool) (series string, f figure, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(p[c])) {
		if g := p[c][name]; match(name) && (!ok || g.us < f.us) {
			series, f, ok = name, g, true
		}
	}
	return series, f, ok
}

// covered reports whether a cell has at least half of the matching series that are not hopeless at the same size in
// some placement: the best of a few is no envelope.
func (p pool) covered(c cell, match func(series string) bool) bool {
	here := 0
	everywhere := map[string]bool{}
	for other, figures := range p {
		if other.measure != c.measure || other.op != c.op || other.bytes != c.bytes {
			continue
		}
		_, fastest, _ := p.best(other, match)
		for name, f := range figures {
			if !match(name) || f.us > hopeless*fastest.us {
				continue
			}
			everywhere[name] = true
			if other == c {
				here++
			}
		}
	}
	return here > 0 && 2*here >= len(everywhere)
}

// sizes returns the sizes that a measure has in a placement, ascending.
func (p pool) sizes(measure, where, op string) []int {
	var all []int
	for c := range p {
		if c.measure == measure && c.where == where && c.op == op {
			all = append(all, c.bytes)
		}
	}
	slices.Sort(all)
	return all
}

// placements returns the placements in which anything was measured, sorted.
func (p pool) placements() []string {
	seen := map[string]bool{}
	for c := range p {
		seen[c.where] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// ratioByRound returns the median of peer's time by ours in the rounds that have both; 0 if there's none.
func ratioByRound(ours, peer figure) float64 {
	var ratios []float64
	for round, us := range ours.byRound {
		if other, ok := peer.byRound[round]; ok && us > 0 {
			ratios = append(ratios, other/us)
		}
	}
	return median(ratios)
}
