//go:build (!amd64 || race) && !steps

package sys

import "sync/atomic"

// StoreRelaxed stores a word that other goroutines load atomically, after all that was stored before it.
func StoreRelaxed(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
