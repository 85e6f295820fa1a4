package record

import (
	"sync"
	"time"
)

// The recorder's clock counts ticks: the processor's own where they are steady, else nanoseconds of the kernel's clock.
var (
	steady = steadyTicks()
	origin = time.Now()
	first  = now()
)

func now() uint64 {
	if steady {
		return ticks()
	}
	return uint64(time.Since(origin)) + 1 // never 0, which means not measured
}

// timeline converts ticks to times.
type timeline struct {
	ns float64 // per tick
}

var calibrated struct {
	sync.Mutex
	timeline
}

// calibrate measures how fast the clock ticks, over the life of the process so far.
func calibrate() timeline {
	if !steady {
		return timeline{1}
	}
	calibrated.Lock()
	defer calibrated.Unlock()
	// Ten milliseconds give four digits; the longer the process lives the more there are.
	const enough = 10 * time.Millisecond
	elapsed := time.Since(origin)
	if elapsed >= 0 && elapsed < enough {
		time.Sleep(enough - elapsed)
		elapsed = time.Since(origin)
	}
	switch {
	case elapsed > 0:
		calibrated.ns = float64(elapsed) / float64(now()-first)
	case calibrated.ns == 0: // in the virtual time of testing/synctest, which tells nothing about ticks
		calibrated.ns = 1
	}
	return calibrated.timeline
}

// at returns the time of a tick in nanoseconds since 1970; 0 for the tick 0.
func (l timeline) at(tick uint64) int64 {
	if tick == 0 {
		return 0
	}
	return origin.UnixNano() + int64(float64(int64(tick-first))*l.ns)
}
