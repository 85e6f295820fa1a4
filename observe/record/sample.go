//go:build amd64 || arm64

package record

// sample stores the return addresses of the callers of its caller, innermost first and without the first. A zero
// follows if there are fewer than frames. Other goroutines, which load them atomically, see all that was stored before
// it earlier than these. runtime.Callers, which looks each of them up in tables, takes far longer.
//
//go:noescape
func sample(pcs *[frames]uintptr)

// mark reads the counter and finds the callers of the function that calls it, as sample does. If they are those of the
// path, it only compares: the loads don't wait for each other then, as the processor knows all addresses beforehand.
// Else it makes them the trail.
//
//go:noescape
func mark(p *path, t *trail) (tick uint64)

// ticks returns the processor's counter.
func ticks() uint64

// steadyTicks reports whether the counter runs at one rate whatever the processor does.
func steadyTicks() bool
