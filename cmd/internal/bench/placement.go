package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/tensor"
)

// Placement says how far apart two cores are: those of a virtual machine move.
type Placement struct {
	RoundTripNS float64 `json:"round_trip_ns"` // of a cache line between the cores; 0: not measured
	Where       string  `json:"where"`         // near, far or crowded
}

// String is for people.
func (p Placement) String() string {
	if p.RoundTripNS == 0 {
		return p.Where
	}
	return fmt.Sprintf("%s (%.0f ns for a cache line there and back)", p.Where, p.RoundTripNS)
}

// The placements.
const (
	Near    = "near"    // the cores share a cache
	Far     = "far"     // they don't
	Crowded = "crowded" // there's one core, or something else keeps them busy
)

const (
	// Measured on virtual machines of two AMD cores (Zen 3 and Zen 4): 55 ns near and 325 ns far on an idle machine.
	// Where the other hardware thread of a core ran something else: up to 160 near, from 360 on far. The limit is the
	// geometric mean of 160 and 360. A round trip that takes several times the far one waited for a core.
	nearestFar     = 240.0
	nearestCrowded = 2000.0

	probeRounds = 100 // round trips in a block
	probeBlocks = 31
	probeLimit  = 5 * time.Millisecond
)

// Probe sends a cache line to and fro between the first two cores that this
// process may use. It takes a millisecond, and needs both cores for itself.
func Probe() Placement {
	cpus, err := sys.AllowedCPUs()
	if err != nil || len(cpus) < 2 {
		return Placement{Where: Crowded}
	}
	return placementOf(pingPong(cpus[0], cpus[1]))
}

// placementOf names a round trip; 0 means that it could not be measured.
func placementOf(ns float64) Placement {
	p := Placement{RoundTripNS: ns, Where: Near}
	switch {
	case ns == 0 || ns >= nearestCrowded:
		p.Where = Crowded
	case ns >= nearestFar:
		p.Where = Far
	}
	return p
}

// line is a word that shares its cache line, and the one fetched along with it, with nothing.
type line struct {
	_ [128]byte
	v atomic.Uint32
	_ [124]byte
}

// pingPong returns the median round trip in nanoseconds, or 0 if it took too long.
func pingPong(cpuA, cpuB int) float64 {
	var ping, pong line
	var gaveUp atomic.Bool
	deadline := time.Now().Add(probeLimit)
	await := func(l *line, want uint32) bool {
		for i := 1; l.v.Load() != want; i++ {
			if i%4096 == 0 && (gaveUp.Load() || time.Now().After(deadline)) {
				gaveUp.Store(true)
				return false
			}
		}
		return true
	}
	const total = probeRounds * probeBlocks
	samples := make([]float64, 0, probeBlocks)
	var both sync.WaitGroup
	both.Go(func() {
		pin(cpuB)
		for i := uint32(1); i <= total && await(&ping, i); i++ {
			pong.v.Store(i)
		}
	})
	both.Go(func() {
		pin(cpuA)
		var start time.Time
		for i := uint32(1); i <= total; i++ {
			if i%probeRounds == 1 {
				start = time.Now()
			}
			ping.v.Store(i)
			if !await(&pong, i) {
				return
			}
			if i%probeRounds == 0 {
				samples = append(samples, float64(time.Since(start).Nanoseconds())/probeRounds)
			}
		}
	})
	both.Wait()
	if len(samples) < probeBlocks/2 {
		return 0
	}
	return summarize(samples).median
}

// pin ties the calling goroutine to a core for the rest of its life; its thread ends with it.
func pin(cpu int) {
	runtime.LockOSThread()
	_ = sys.PinThread(0, sys.CPUSet{cpu}) // if it's refused, the kernel's choice is measured
}

// placement probes on rank 0 and tells all ranks.
func (r *Runner) placement() (Placement, error) {
	if err := r.barrier(); err != nil {
		return Placement{}, err
	}
	v := []float64{0}
	if r.c.Rank() == 0 {
		v[0] = Probe().RoundTripNS
	} else {
		// A rank that waits in a broadcast would keep a core busy.
		time.Sleep(probeLimit)
	}
	err := r.c.Broadcast(r.ctx, tensor.Of(v), 0)
	return placementOf(v[0]), err
}
