package main

import (
	"math"
	"slices"
	"time"
)

// burst is one series' turn: some rounds of one operation and size.
type burst struct {
	Measure string `json:"measure"` // all_reduce, refill, ...
	Series  string `json:"series"`  // the setting of a library
	Op      string `json:"op"`
	Bytes   int    `json:"bytes"`
	InPlace bool   `json:"in_place"`
	Round   int    `json:"round"`

	US        float64 `json:"us"` // the slowest rank's median
	Rounds    int     `json:"rounds"`
	LimitUS   float64 `json:"limit_us,omitempty"` // ours: one pass over the same memory without synchronization
	Algorithm string  `json:"algorithm,omitempty"`
	Wrong     int     `json:"wrong,omitempty"` // elements

	Where  string  `json:"where"` // placement, the same before and after; empty if it was not
	Before float64 `json:"before_ns"`
	After  float64 `json:"after_ns"`
}

// counts reports whether the burst may be compared with others.
func (b *burst) counts() bool { return b.Where != "" && b.Wrong == 0 && b.US > 0 }

// schedule is how often a burst runs its operation.
type schedule struct{ warmup, blocks, perBlock int }

const (
	blockTime    = 20e-6 // seconds; the clock's cost is lost in it
	fewestBlocks = 3
	mostBlocks   = 200
	mostWarmup   = 500
)

// plan divides a budget of time into blocks of rounds that take about each seconds. Before them everybody's rounds run
// for as long again: ranks have just been woken up, and Go's runtime looks after the threads of a process that was idle
// every 20 us for its first milliseconds. Eight ranks on two cores take five times as long meanwhile.
func plan(budget time.Duration, each float64, refill bool) schedule {
	each = max(each, 1e-8)
	s := schedule{perBlock: 1}
	if !refill {
		s.perBlock = max(1, int(math.Ceil(blockTime/each)))
	}
	s.blocks = int(min(mostBlocks, max(fewestBlocks, budget.Seconds()/(each*float64(s.perBlock)))))
	s.warmup = int(min(mostWarmup, max(1, budget.Seconds()/each)))
	return s
}

// median returns the middle of the values, which it leaves as they are; 0 if there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// geomean returns the geometric mean of positive values; 0 if there are none.
func geomean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}
