//go:build amd64 || arm64

package observe

// sample stores the return addresses of the callers of the function that calls it, innermost first and without the first,
// followed by a zero if there are fewer than frames; and returns the counter. It takes as long as reading the
// counter does, because the processor does both at once; runtime.Callers takes twenty times as long.
//
// It also calls for the slot after the one that pcs is part of: when the next operation comes, this one has driven it
// out of the nearest caches if it was large, and the flags that follow would wait for its lines.
//
//go:noescape
func sample(pcs *[frames]uintptr) uint64

// ticks returns the processor's counter.
func ticks() uint64

// steadyTicks reports whether the counter runs at one rate whatever the processor does.
func steadyTicks() bool
