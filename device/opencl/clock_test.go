package opencl

import (
	"testing"
	"time"
)

// The device's clock counts from another time than the host's. Calls come to the library a while after they began.
func TestClock(t *testing.T) {
	begin := time.Now()
	const ahead = 1000 * time.Hour
	var c clock
	c.reset(begin)
	for _, delay := range []time.Duration{900, 40, 300, 2} { // microseconds from the call to the library
		called := begin.Add(time.Second)
		c.seen(ahead+time.Second+delay*time.Microsecond, called)
	}
	if off := c.host(ahead + 3*time.Second).Sub(begin.Add(3 * time.Second)); off > 0 || off < -2*time.Microsecond {
		t.Errorf("the device's time is off by %v", off)
	}
	c.reset(begin)
	c.seen(5*time.Second, begin)
	if off := c.host(6 * time.Second).Sub(begin.Add(time.Second)); off != 0 {
		t.Errorf("of another trace: off by %v", off)
	}
}
