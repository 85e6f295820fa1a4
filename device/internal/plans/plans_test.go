package plans

import (
	"errors"
	"slices"
	"testing"
)

// The plans that were used last are kept, and each is dropped once.
func TestCache(t *testing.T) {
	var made, dropped []int
	c := New[int, int](2, func(p int) { dropped = append(dropped, p) })
	use := func(k int) {
		t.Helper()
		err := c.Use(k, func() (int, error) { made = append(made, k); return 10 * k, nil }, func(p int) error {
			if p != 10*k {
				t.Errorf("the plan of %d is %d", k, p)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		c.Reap()
	}
	for _, x := range []struct {
		do            func()
		made, dropped []int
		n             int
	}{
		{func() { use(1); use(2); use(1) }, []int{1, 2}, nil, 2},
		{func() { use(3) }, []int{3}, []int{20}, 2},
		{func() { use(1); use(2) }, []int{2}, []int{30}, 2},
		{func() { _ = c.SetMost(1) }, nil, []int{10}, 1},
		{func() { _ = c.SetMost(0); use(4) }, []int{4}, []int{20, 40}, 0},
		{func() { _ = c.SetMost(9); use(5); use(6); use(7) }, []int{5, 6, 7}, nil, 3},
		{func() { c.Forget(func(k int) bool { return k == 6 }); c.Reap() }, nil, []int{60}, 2},
		{func() { c.Clear(); c.Clear() }, nil, []int{50, 70}, 0},
	} {
		made, dropped = nil, nil
		x.do()
		slices.Sort(dropped)
		if !slices.Equal(made, x.made) || !slices.Equal(dropped, x.dropped) || c.Len() != x.n {
			t.Errorf("made %v, dropped %v, kept %d; want %+v", made, dropped, c.Len(), x)
		}
	}
	if err := c.SetMost(-1); err == nil || c.Most() != 9 {
		t.Errorf("a negative number of plans: %v, %d", err, c.Most())
	}
	refused := errors.New("refused")
	if err := c.Use(8, func() (int, error) { return 0, refused }, nil); err != refused || c.Len() != 0 {
		t.Errorf("a plan that isn't made: %v", err)
	}
	if err := c.Use(8, func() (int, error) { return 80, nil }, func(int) error { return refused }); err != refused {
		t.Errorf("the error of a use: %v", err)
	}
}
