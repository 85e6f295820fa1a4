//go:build !amd64 || race

package relaxed

import "sync/atomic"

// Store stores a word that other goroutines load atomically, after all that was stored before it.
func Store(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
