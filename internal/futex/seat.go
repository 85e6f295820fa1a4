package futex

import "sync/atomic"

// Seat is a word of shared memory in which a process says where it was when it last waited in vain for long: the core,
// plus one, in the lower half, and when, in the upper. Zero: it has not said, or somebody has acted on it since.
type Seat struct{ word atomic.Uint64 }
