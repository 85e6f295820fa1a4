package native

import "testing"

// TestStoringFollowsPlacement moves the cores apart and together again: fills take the way that suits, soon
// after, and a single slow fill changes nothing.
func TestStoringFollowsPlacement(t *testing.T) {
	const (
		near, far, bypassing = 25.0, 2.4, 35.0 // bytes per nanosecond, as measured
		soon                 = 2 * exploreEvery
	)
	var c storeClass
	bypassed := func(ordinary float64, fills int) (n int) {
		for range fills {
			if way := c.next(); way {
				n++
				c.measured(true, bypassing)
			} else {
				c.measured(false, ordinary)
			}
		}
		return n
	}
	for range 3 {
		bypassed(near, learning+soon)
		if n := bypassed(near, 320); n != 320/exploreEvery {
			t.Errorf("near, %d of 320 fills bypass the cache, want one in %d", n, exploreEvery)
		}
		if n := bypassed(far, soon); n < soon-6 {
			t.Errorf("far, only %d of the first %d fills bypass the cache", n, soon)
		}
		if n := bypassed(far, 320); n != 320-320/exploreEvery {
			t.Errorf("far, %d of 320 fills bypass the cache, want all but one in %d", n, exploreEvery)
		}
	}
	bypassed(near, learning+soon)
	c.measured(false, near/100) // interrupted
	if c.bypass {
		t.Error("one slow fill is taken for distant cores")
	}
}
