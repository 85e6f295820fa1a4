package dl

// Heap returns p. What p points to lies on the heap, where its address stays good: a goroutine's stack moves when it
// grows. The caller keeps it alive until the last call that gets the address has returned.
func Heap[T any](p *T) *T {
	if escape.ever {
		escape.to = p
	}
	return p
}

// escape makes the compiler assume that a pointer outlives its function.
var escape struct {
	ever bool // never, which the compiler doesn't know
	to   any
}
