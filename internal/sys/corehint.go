package sys

import "sync/atomic"

// CoreHint is a word of shared memory in which a process publishes the core of its last long wait: the core plus one in
// the lower half, the time in the upper half. Zero means that it hasn't published one, or that a peer has acted on it
// since.
type CoreHint struct{ word atomic.Uint64 }
