//go:build !amd64 || race

package publish

import "sync/atomic"

// Word stores a word that other goroutines load atomically, after all that was stored before it.
func Word(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
