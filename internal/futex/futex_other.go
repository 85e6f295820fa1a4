//go:build !linux || chorus_portable

package futex

import (
	"runtime"
	"sync/atomic"
	"time"
)

// longestWait is how long Wait sleeps before its caller looks again, since nothing wakes it.
const longestWait = 100 * time.Microsecond

// Wait sleeps while *addr == v, at most d. It may return early, and does: nothing here tells one process that another
// has changed a word.
func Wait(addr *uint32, v uint32, d time.Duration) {
	if atomic.LoadUint32(addr) == v {
		time.Sleep(min(d, longestWait))
	}
}

// Wake does nothing: sleepers poll the word soon by themselves.
func Wake(addr *uint32) {}

// Yield gives the core to another goroutine.
func Yield() { runtime.Gosched() }

// MigrateOffSharedCore leaves the caller where it is.
func MigrateOffSharedCore(mine, theirs *CoreHint) {}
