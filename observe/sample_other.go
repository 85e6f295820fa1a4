//go:build !amd64 && !arm64

package observe

import "runtime"

func sample(pcs *[frames]uintptr) uint64 {
	n := runtime.Callers(4, pcs[:])
	if n < frames {
		pcs[n] = 0
	}
	return 0
}

func ticks() uint64 { return 0 }

func steadyTicks() bool { return false }
