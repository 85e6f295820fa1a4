package base

import (
	"testing"
	"testing/synctest"
	"time"
)

// point is a point in a stream's work, in virtual time.
type point struct{ at time.Time }

func (p point) Over() bool { return !time.Now().Before(p.at) }

// slow is a device whose work ends then.
type slow struct {
	until time.Time
	held  bool
}

func (d *slow) Pending() []point { return []point{{d.until}} }
func (d *slow) Held() bool       { return d.held }

// A wait for memory goes on while some comes back, however far behind the stream is, and ends if none does.
func TestReclaim(t *testing.T) {
	for what, c := range map[string]struct {
		ends []time.Duration // when memory comes back
		left int
		took time.Duration
	}{
		"none":                    {nil, 0, 0},
		"seconds behind":          {[]time.Duration{5 * time.Second}, 0, 5 * time.Second},
		"some comes now and then": {[]time.Duration{20 * time.Second, 45 * time.Second}, 0, 45 * time.Second},
		"none comes":              {[]time.Duration{time.Second, time.Hour}, 100, time.Second + patience},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m Frees[*slow, point]
				of, other, begin, released := &slow{}, &slow{}, time.Now(), 0
				for _, end := range c.ends {
					of.until = begin.Add(end)
					m.Add(of, []*slow{of}, 100, func() { released++ })
				}
				other.until = begin.Add(time.Hour)
				m.Add(other, []*slow{other}, 100, func() { t.Error("another device's memory came back") })
				m.Reclaim(of)
				if took := time.Since(begin).Truncate(time.Second); took != c.took {
					t.Errorf("waited %v, want %v", took, c.took)
				}
				if left := m.Reap(of); left != c.left || released != len(c.ends)-c.left/100 {
					t.Errorf("%d bytes remain, want %d; %d of %d were released", left, c.left, released, len(c.ends))
				}
			})
		})
	}
}

// A release may be the last for a while: then the others wait until the device isn't held any more.
func TestReapOfHeld(t *testing.T) {
	var m Frees[*slow, point]
	of, released := &slow{}, 0
	for range 3 {
		m.Behind(of, nil, 100, func() { released, of.held = released+1, true })
	}
	for i := 1; i <= 3; i++ {
		of.held = false
		if left := m.Reap(of); left != 300-100*i || released != i {
			t.Errorf("%d were released, and %d bytes remain; want %d and %d", released, left, i, 300-100*i)
		}
		if m.Reap(of); released != i {
			t.Errorf("%d were released of a device that is held, want %d", released, i)
		}
	}
}
