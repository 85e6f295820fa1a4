package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
)

// point is ours beside another at one size.
type point struct {
	Op      string  `json:"op"`
	Bytes   int     `json:"bytes"`
	Ours    float64 `json:"ours_us"`
	Theirs  float64 `json:"theirs_us"`
	Series  string  `json:"series"` // theirs
	Ratio   float64 `json:"ratio"`
	ByRound float64 `json:"ratio_by_round,omitempty"` // median of the ratios within a round
}

// verdict says in one placement whether a target is reached.
type verdict struct {
	Target  string  `json:"target"`
	Where   string  `json:"where"`
	Goal    string  `json:"goal"`
	Reached string  `json:"reached"`
	Verdict string  `json:"verdict"` // PASS, FAIL or SKIPPED
	Reason  string  `json:"reason,omitempty"`
	Points  []point `json:"points,omitempty"`
}

const (
	pass    = "PASS"
	fail    = "FAIL"
	skipped = "SKIPPED"
)

// fewestBursts of ours make a point; what was seen in passing, as the placement changed, does not.
const fewestBursts = 2

// target is one promise. Points come from compare, which says why there are none; the ratios' geometric mean must reach
// mean, and the least of them least. Zero means no limit.
type target struct {
	text        string
	mean, least float64
	compare     func(p pool, where string) ([]point, string)
}

var targets = []target{
	{"all-reduce, mapped, 256 KiB to 256 MiB, by the envelope", 3, 1.4, againstPeers("all_reduce", "chorus.mapped", nil,
		isPeers, 256*kib, 256*mib)},
	{"all-reduce, mapped, from 1 MiB, by one unsynchronized pass", 0, 0.85, againstLimit},
	{"all-reduce, ordinary, 16 KiB to 256 MiB, by the envelope", 1.2, 0.9, againstPeers("all_reduce", "chorus.ordinary",
		nil, isPeers, 16*kib, 256*mib)},
	{"all-reduce, mapped, 4 to 128 KiB, by the envelope", 0, 2, againstPeers("all_reduce", "chorus.mapped", nil, isPeers,
		4*kib, 128*kib)},
	{"all-reduce, mapped, 8 B to 1 KiB, by the envelope", 0, 1, againstPeers("all_reduce", "chorus.mapped", nil, isPeers,
		8, kib)},
	{"all-reduce, ordinary, 8 B to 1 KiB, by the envelope", 0, 1, againstPeers("all_reduce", "chorus.ordinary", nil,
		isPeers, 8, kib)},
	{"broadcast, mapped, from 64 KiB, by the best MPI", 0, 1.3, againstPeers("collectives", "chorus.mapped",
		[]string{"broadcast"}, isMPI, 64*kib, 0)},
	{"all-gather, mapped, from 64 KiB, by the best MPI", 0, 1.3, againstPeers("collectives", "chorus.mapped",
		[]string{"all_gather"}, isMPI, 64*kib, 0)},
	{"reduce-scatter, mapped, from 64 KiB, by the best MPI", 0, 1.3, againstPeers("collectives", "chorus.mapped",
		[]string{"reduce_scatter"}, isMPI, 64*kib, 0)},
	{"all-to-all, mapped, from 64 KiB, by the best MPI", 0, 1.3, againstPeers("collectives", "chorus.mapped",
		[]string{"all_to_all"}, isMPI, 64*kib, 0)},
	{"all-reduce, buffers written anew, mapped, from 16 KiB, by the envelope", 0, 1.2, againstPeers("refill",
		"chorus.mapped", nil, isPeers, 16*kib, 0)},
	{"all-reduce, buffers written anew, ordinary, from 16 KiB, by the envelope", 0, 1.2, againstPeers("refill",
		"chorus.ordinary", nil, isPeers, 16*kib, 0)},
	{"all-reduce over TCP, from 1 MiB, by Gloo", 0, 2, againstPeers("tcp", "chorus.mapped", nil, isOf("gloo"), mib, 0)},
	{"all-reduce over TCP, from 1 MiB, by Open MPI", 0, 1, againstPeers("tcp", "chorus.mapped", nil, isOf("ompi"), mib,
		0)},
	{"all-reduce, 8 ranks on 2 cores, 8 B to 64 MiB, by the best MPI", 0, 1, againstPeers("crowd", "chorus.mapped", nil,
		isMPI, 8, 64*mib)},
	{"bf16 all-reduce, 256 KiB to 64 MiB, bytes per second by our f32", 0, 0.8, againstSeries("dtypes", "chorus.bf16",
		"chorus.f32")},
	{"f16 all-reduce, 256 KiB to 64 MiB, bytes per second by our f32", 0, 0.8, againstSeries("dtypes", "chorus.f16",
		"chorus.f32")},
}

// isOf matches the settings of a library whose name begins so.
func isOf(prefix string) func(string) bool {
	return func(series string) bool { return strings.HasPrefix(series, prefix) }
}

// againstPeers compares ours with the best of the series that match.
func againstPeers(measure, ours string, ops []string, match func(string) bool, least,
	most int) func(pool, string) ([]point, string) {
	if ops == nil {
		ops = []string{"all_reduce"}
	}
	return func(p pool, where string) (points []point, reason string) {
		reason = "not measured"
		for _, op := range ops {
			for _, size := range between(p.sizes(measure, where, op), least, most) {
				c := cell{measure, where, op, size}
				mine, ok := p[c][ours]
				if !ok {
					continue
				}
				name, other, ok := p.best(c, match)
				if !ok {
					reason = "no peer to compare with"
					continue
				}
				if mine.bursts < fewestBursts || !p.covered(c, match) {
					reason = "too few bursts"
					continue
				}
				points = append(points, newPoint(c, mine, other, name))
			}
		}
		return points, reason
	}
}

// againstSeries compares two of ours.
func againstSeries(measure, ours, other string) func(pool, string) ([]point, string) {
	return againstPeers(measure, ours, nil, func(s string) bool { return s == other }, 0, 0)
}

// againstLimit takes the limit for the other's time, which makes the ratio the share of it.
func againstLimit(p pool, where string) (points []point, reason string) {
	for _, size := range between(p.sizes("all_reduce", where, "all_reduce"), mib, 0) {
		c := cell{"all_reduce", where, "all_reduce", size}
		if f, ok := p[c]["chorus.mapped"]; ok && f.limitUS > 0 && f.bursts >= fewestBursts {
			points = append(points, newPoint(c, f, figure{us: f.limitUS}, "one pass"))
		}
	}
	return points, "not measured"
}

func newPoint(c cell, ours, other figure, name string) point {
	return point{Op: c.op, Bytes: c.bytes, Ours: ours.us, Theirs: other.us, Series: name, Ratio: other.us / ours.us,
		ByRound: ratioByRound(ours, other)}
}

// judge says in each placement which targets are reached.
func judge(p pool, allocs map[string]float64) []verdict {
	var all []verdict
	for _, t := range targets {
		for _, where := range []string{bench.Near, bench.Far} {
			all = append(all, t.judge(p, where))
		}
	}
	return append(all, judgeAllocs(allocs))
}

func (t *target) judge(p pool, where string) verdict {
	points, reason := t.compare(p, where)
	v := verdict{Target: t.text, Where: where, Goal: t.goal(), Points: points, Verdict: skipped, Reason: reason}
	if len(points) == 0 {
		if !slices.Contains(p.placements(), where) {
			v.Reason = "the cores were never " + where
		}
		return v
	}
	var ratios []float64
	worst := points[0]
	for _, x := range points {
		ratios = append(ratios, x.Ratio)
		if x.Ratio < worst.Ratio {
			worst = x
		}
	}
	mean := geomean(ratios)
	v.Verdict, v.Reason = pass, ""
	if mean < t.mean || worst.Ratio < t.least {
		v.Verdict = fail
	}
	v.Reached = fmt.Sprintf("%.2f at %s (%s)", worst.Ratio, sizeName(worst.Bytes), worst.Series)
	if len(points) > 1 {
		v.Reached += fmt.Sprintf(", mean %.2f", mean)
	}
	return v
}

func (t *target) goal() string {
	goal := fmt.Sprintf(">= %g", t.least)
	if t.mean > 0 {
		goal = fmt.Sprintf("mean >= %g, each >= %g", t.mean, t.least)
	}
	return goal
}

func judgeAllocs(allocs map[string]float64) verdict {
	v := verdict{Target: "allocations of a synchronous operation", Where: "any", Goal: "0", Verdict: skipped,
		Reason: "not measured"}
	if len(allocs) == 0 {
		return v
	}
	most := math.Inf(-1)
	for _, op := range counted {
		if n, ok := allocs[op]; ok && n > most {
			most, v.Reached = n, fmt.Sprintf("%g (%s)", n, op)
		}
	}
	v.Verdict, v.Reason = pass, ""
	if most > 0 {
		v.Verdict = fail
	} else {
		v.Reached = fmt.Sprintf("0 in all of %d", len(allocs))
	}
	return v
}

// sizeName shows a size: 8 B, 16 KiB, 256 MiB.
func sizeName(n int) string {
	switch {
	case n >= mib && n%mib == 0:
		return fmt.Sprintf("%d MiB", n/mib)
	case n >= kib && n%kib == 0:
		return fmt.Sprintf("%d KiB", n/kib)
	}
	return fmt.Sprintf("%d B", n)
}
