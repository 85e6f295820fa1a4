package device

import (
	"slices"
	"testing"
)

// A copy of more elements than a run takes is several, of every element once.
func TestPieces(t *testing.T) {
	sizes, to, from := []int{1, 5, 3, 4}, []int{9, 12, 4, 1}, []int{9, 2, 10, 30}
	each := func(dst, src Ptr, sizes []int, f func(dst, src Ptr)) {
		for i := range product(sizes) {
			d, s, rest := dst, src, i
			for k := len(sizes) - 1; k >= 0; k-- {
				d, s = d.Add(rest%sizes[k]*to[k]), s.Add(rest%sizes[k]*from[k])
				rest /= sizes[k]
			}
			f(d, s)
		}
	}
	var want [][2]Ptr
	each(1000, 5000, sizes, func(d, s Ptr) { want = append(want, [2]Ptr{d, s}) })
	for _, most := range []int{1, 2, 7, 13, 59, 60} {
		var got [][2]Ptr
		runs := 0
		err := pieces(most, 1000, 5000, sizes, to, from, func(dst, src Ptr, sizes []int) error {
			if runs++; product(sizes) > most {
				t.Errorf("a run of %d elements, of %d at most", product(sizes), most)
			}
			each(dst, src, sizes, func(d, s Ptr) { got = append(got, [2]Ptr{d, s}) })
			return nil
		})
		slices.SortFunc(got, func(a, b [2]Ptr) int { return int(a[0]) - int(b[0]) })
		if err != nil || !slices.Equal(got, want) || (runs == 1) != (most == 60) {
			t.Errorf("at most %d: %d elements in %d runs, %v", most, len(got), runs, err)
		}
	}
}
