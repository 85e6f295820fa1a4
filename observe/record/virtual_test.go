package record

import (
	"testing"
	"testing/synctest"
	"time"
)

// In virtual time, which begins in the year 2000, calibration must not wait for the day on which the process was
// started.
func TestCalibrateInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if l := calibrate(); l.ns <= 0 {
			t.Errorf("%v nanoseconds per tick", l.ns)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("waited %v", d)
		}
	})
}
