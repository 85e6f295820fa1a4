//go:build !linux || chorus_portable

package sys

import (
	"runtime"
	"sync/atomic"
	"time"
)

// longestWait is how long FutexWait sleeps before its caller looks again, since nothing wakes it.
const longestWait = 100 * time.Microsecond

// FutexWait sleeps while *addr == v, at most d. It may return early, and does: nothing here tells one process that
// another has changed a word.
func FutexWait(addr *uint32, v uint32, d time.Duration) {
	if atomic.LoadUint32(addr) == v {
		time.Sleep(min(d, longestWait))
	}
}

// FutexWake does nothing: sleepers poll the word soon by themselves.
func FutexWake(addr *uint32) {}

// Yield gives the core to another goroutine.
func Yield() { runtime.Gosched() }

// MigrateOffSharedCore leaves the caller where it is.
func MigrateOffSharedCore(mine, theirs *CoreHint) {}
