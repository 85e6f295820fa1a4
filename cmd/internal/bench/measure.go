package bench

import (
	"math"
	"slices"
	"time"
)

const (
	// blockTime is how long a block of rounds takes at least: four hundred times as
	// long as reading the clock.
	blockTime = 20 * time.Microsecond
	// Fewer blocks have no meaningful median, more no better one.
	fewestBlocks = 5
	mostBlocks   = 10000
	// mostWarmup bounds the rounds before the clock starts.
	mostWarmup = 10000
)

// schedule is how often a row's round runs. All ranks have the same.
type schedule struct{ blocks, perBlock int }

func (s schedule) rounds() int { return s.blocks * s.perBlock }

// scheduleFor divides a time into blocks of rounds that take about each seconds. iters, if
// not 0, is the number of rounds instead.
func scheduleFor(budget time.Duration, each float64, iters int) schedule {
	each = max(each, 1e-9)
	s := schedule{perBlock: max(1, int(math.Ceil(blockTime.Seconds()/each)))}
	if iters > 0 {
		s.perBlock = min(s.perBlock, iters)
		s.blocks = (iters + s.perBlock - 1) / s.perBlock
		return s
	}
	s.blocks = int(min(mostBlocks, max(fewestBlocks, budget.Seconds()/(each*float64(s.perBlock)))))
	return s
}

// stats are seconds per round.
type stats struct{ median, p99 float64 }

// summarize sorts the samples and returns their statistics.
func summarize(samples []float64) stats {
	slices.Sort(samples)
	return stats{median: median(samples), p99: percentile(samples, 99)}
}

// median and percentile want ascending samples.
func median(samples []float64) float64 {
	n := len(samples)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return samples[n/2]
	}
	return (samples[n/2-1] + samples[n/2]) / 2
}

// percentile returns the nearest-rank percentile.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	at := int(math.Ceil(p / 100 * float64(len(samples))))
	return samples[max(0, at-1)]
}

// timed runs the schedule and returns the mean seconds of a round for each block, at whose end a device is waited for.
func (s schedule) timed(rd round) ([]float64, error) {
	samples := make([]float64, s.blocks)
	last := time.Now()
	for i := range samples {
		for range s.perBlock {
			if err := rd.call(); err != nil {
				return nil, err
			}
		}
		if rd.synchronize != nil {
			if err := rd.synchronize(); err != nil {
				return nil, err
			}
		}
		now := time.Now()
		samples[i] = now.Sub(last).Seconds() / float64(s.perBlock)
		last = now
	}
	return samples, nil
}
