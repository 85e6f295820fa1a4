package dl

// Heap returns p, and moves the variable that p points to to the heap. Its address stays good there, while a
// goroutine's stack moves when it grows. The caller keeps it alive until the last call that gets the address has
// returned.
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
