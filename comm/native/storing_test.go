package native

import "testing"

// cores are what fills run at, in bytes per nanosecond, as measured.
type cores struct{ ordinary, bypassing float64 }

var (
	near    = cores{25, 35}
	far     = cores{2.4, 35}
	farCold = cores{2.4, 6} // the input comes from memory
)

// fill has an operation of so many bytes make fills, and returns how many of them bypass the cache.
func (c cores) fill(s *storing, bytes, fills int) (n int) {
	s.begin(bytes, "")
	for range fills {
		if s.next() {
			n++
			s.measured(true, c.bypassing)
		} else {
			s.measured(false, c.ordinary)
		}
	}
	return n
}

// TestStoringFollowsPlacement moves the cores apart and together again: fills take the way that suits, soon
// after, and a single slow fill changes nothing.
func TestStoringFollowsPlacement(t *testing.T) {
	const size, soon = 1 << 20, 2 * exploreEvery
	for _, apart := range []cores{far, farCold} {
		var s storing
		near.fill(&s, size, learning)
		for range 3 {
			near.fill(&s, size, soon)
			if n := near.fill(&s, size, 320); n != 320/exploreEvery {
				t.Errorf("near, %d of 320 fills bypass the cache, want one in %d", n, exploreEvery)
			}
			if n := apart.fill(&s, size, soon); n < soon-6-exploreEvery {
				t.Errorf("far, only %d of the first %d fills bypass the cache", n, soon)
			}
			if n := apart.fill(&s, size, 320); n != 320-320/exploreEvery {
				t.Errorf("far, %d of 320 fills bypass the cache, want all but one in %d", n, exploreEvery)
			}
		}
		near.fill(&s, size, soon)
		s.measured(false, near.ordinary/100) // interrupted
		if s.far {
			t.Error("one slow fill is taken for distant cores")
		}
	}
}

// TestStoringOfAllSizes has operations of one size find where the cores are: those of others know it at once, though
// they have found otherwise before.
func TestStoringOfAllSizes(t *testing.T) {
	const known, fresh, old = 1 << 20, 64 << 20, 16 << 10
	var s storing
	near.fill(&s, old, 10*exploreEvery)
	far.fill(&s, known, 3*exploreEvery)
	for _, size := range []int{fresh, old} {
		if n := far.fill(&s, size, 10); n < 9 {
			t.Errorf("of the first 10 fills for %d bytes %d bypass the cache", size, n)
		}
	}
	near.fill(&s, known, 3*exploreEvery)
	for _, size := range []int{fresh, old} {
		if n := near.fill(&s, size, 10); n > 1 {
			t.Errorf("of the first 10 fills for %d bytes %d bypass the cache, though the cores are near again", size, n)
		}
	}
}

// TestStoringByHint has a hint decide for its operation alone.
func TestStoringByHint(t *testing.T) {
	var s storing
	near.fill(&s, 1<<20, 10*exploreEvery)
	if s.begin(1<<20, "bypass"); !s.bypasses() {
		t.Error("a hint doesn't count")
	}
	if s.begin(1<<20, ""); s.bypasses() {
		t.Error("a hint counts for the operations after it")
	}
}
