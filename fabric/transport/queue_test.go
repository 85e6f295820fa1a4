package transport

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestQueue does to a Queue what is done to a slice.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		var want []int
		for i := range rapid.IntRange(0, 300).Draw(t, "steps") {
			at := 0
			if len(want) > 0 {
				at = rapid.IntRange(0, len(want)-1).Draw(t, "at")
			}
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0:
				if len(want) > 0 && q.Remove(want[at]) {
					want = slices.Delete(want, at, at+1)
				}
			case 1:
				if len(want) > 0 {
					v := want[at]
					q.Insert(i, func(u int) bool { return u == v })
					want = slices.Insert(want, at, i)
				}
			case 2:
				third := func(v int) bool { return v%3 == i%3 }
				taken := q.Take(third)
				if slices.ContainsFunc(taken, func(v int) bool { return !third(v) }) || !slices.IsSortedFunc(taken,
					func(a, b int) int {
						return slices.Index(want, a) - slices.Index(want, b)
					}) {
					t.Fatalf("took %v of %v", taken, want)
				}
				want = slices.DeleteFunc(want, third)
			case 3, 4:
				if len(want) > 0 {
					if first, v := q.First(), q.Pop(); v != want[0] || first != v {
						t.Fatalf("popped %d, after %d was first, of %v", v, first, want)
					}
					want = want[1:]
				}
			default:
				q.Push(i)
				want = append(want, i)
			}
			if q.Empty() != (len(want) == 0) {
				t.Fatalf("empty %v, with %v", q.Empty(), want)
			}
		}
		if got := q.Take(func(int) bool { return true }); !slices.Equal(got, want) {
			t.Fatalf("it has %v, not %v", got, want)
		}
	})
}
