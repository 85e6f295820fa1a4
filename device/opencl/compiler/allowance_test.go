package compiler

import (
	"strings"
	"testing"
	"time"
)

// A process that compiles has its limit of the processor's time, however long the clock says. One that does nothing has
// as much of the clock's.
func TestAllowance(t *testing.T) {
	const limit = 120 * time.Second
	for what, c := range map[string]struct {
		used func(clock time.Duration) time.Duration
		ends time.Duration // by the clock
		why  string
	}{
		"alone":                 {func(c time.Duration) time.Duration { return c }, 121 * time.Second, "used 2m1s"},
		"on two cores":          {func(c time.Duration) time.Duration { return 2 * c }, 61 * time.Second, "used 2m2s"},
		"on a busy machine":     {func(c time.Duration) time.Duration { return c / 50 }, 6001 * time.Second, "used 2m"},
		"deadlocked":            {func(time.Duration) time.Duration { return 0 }, 120 * time.Second, "nothing for 2m0s"},
		"deadlocked, by a loop": {func(c time.Duration) time.Duration { return c / 1000 }, 120 * time.Second, "nothing for 2m0s"},
		"stopped for a minute in ten": {func(c time.Duration) time.Duration {
			return (c/(10*time.Minute)*9*time.Minute + min(c%(10*time.Minute), 9*time.Minute)) / 50
		}, 6661 * time.Second, "used 2m"},
	} {
		t.Run(what, func(t *testing.T) {
			p := newAllowance(limit, c.used(0))
			var err error
			clock := time.Duration(0)
			for err == nil && clock < 24*time.Hour {
				clock += p.every
				err = p.over(c.used(clock))
			}
			if clock != c.ends || err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("over after %v: %v; want %v, %q", clock, err, c.ends, c.why)
			}
		})
	}
}
