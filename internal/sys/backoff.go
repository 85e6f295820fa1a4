package sys

import (
	"runtime"
	"time"
)

// Sleep sleeps for d, late by tens of microseconds. time.Sleep and timers below a millisecond may end a millisecond
// late, because the network poller of an idle process rounds up to milliseconds.
func Sleep(d time.Duration) {
	var never uint32
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		FutexWait(&never, 0, d)
	}
}

// Backoff paces a loop that polls. For the first 200 us, in which most waits end, it doesn't pause. Then its pauses
// grow to half a millisecond, and in a long wait to a hundredth of the time waited, at most 20 ms. The zero Backoff is
// ready; a new wait needs a new one.
type Backoff struct {
	begun time.Time
	pause time.Duration
}

const (
	spinFor    = 200 * time.Microsecond
	firstPause = 20 * time.Microsecond
	longPause  = 500 * time.Microsecond
	maxPause   = 20 * time.Millisecond
)

// Pause returns when it is time to ask again.
func (b *Backoff) Pause() {
	if b.pause == 0 {
		now := time.Now()
		if b.begun.IsZero() {
			b.begun = now
		}
		if now.Sub(b.begun) < spinFor {
			runtime.Gosched()
			return
		}
		b.pause = firstPause
	}
	Sleep(b.pause)
	b.pause = min(2*b.pause, max(longPause, min(time.Since(b.begun)/100, maxPause)))
}
