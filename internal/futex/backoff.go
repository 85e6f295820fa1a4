package futex

import (
	"runtime"
	"time"
)

// Sleep sleeps for d, late by tens of microseconds. time.Sleep and timers below a millisecond may end a millisecond
// late: where the process has nothing else to do, the runtime's poller of the network rounds up to that.
func Sleep(d time.Duration) {
	var never uint32
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		Wait(&never, 0, d)
	}
}

// Backoff paces a loop that asks something again and again: at once for the first 200 us, in which most of what is
// asked for ends, then after pauses that grow to half a millisecond, and in a long wait to a hundredth of it, 20 ms at
// most. The zero Backoff is ready; a new wait needs a new one.
type Backoff struct {
	begun time.Time
	pause time.Duration
}

const (
	spinFor    = 200 * time.Microsecond
	firstPause = 20 * time.Microsecond
	longPause  = 500 * time.Microsecond
	longest    = 20 * time.Millisecond
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
	b.pause = min(2*b.pause, max(longPause, min(time.Since(b.begun)/100, longest)))
}
