//go:build !amd64 && !arm64

package record

import (
	"runtime"
	"sync/atomic"
)

// sample stores the return addresses of the callers of the function that calls it, innermost first and without the
// first, followed by a zero if there are fewer than frames. Other goroutines load them atomically.
func sample(pcs *[frames]uintptr) {
	var found [frames]uintptr
	find(&found)
	for i, pc := range found {
		atomic.StoreUintptr(&pcs[i], pc)
	}
}

// mark finds the callers of the function that calls it, as sample does, and makes them the trail. There is no counter.
func mark(p *path, t *trail) (tick uint64) {
	var pcs [frames]uintptr
	find(&pcs)
	if pcs != t.callers {
		t.callers = pcs
		p.moves++
	}
	return 0
}

//go:noinline
func find(pcs *[frames]uintptr) {
	// Skipped are Callers, find, the caller of find, the caller of that, and its caller, which is the first.
	n := runtime.Callers(5, pcs[:])
	if n < frames {
		pcs[n] = 0
	}
}

func ticks() uint64 { return 0 }

func steadyTicks() bool { return false }
