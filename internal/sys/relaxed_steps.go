//go:build steps

package sys

import "sync/atomic"

// Stepped, if it's set, is called after each word that StoreRelaxed has stored. Only programs that are built for
// steps have it: tests that look at what other goroutines see then.
var Stepped func()

// StoreRelaxed stores a word that other goroutines load atomically, after all that was stored before it.
func StoreRelaxed(p *uint64, v uint64) {
	if atomic.StoreUint64(p, v); Stepped != nil {
		Stepped()
	}
}
