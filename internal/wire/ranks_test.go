package wire

import "testing"

func TestRankList(t *testing.T) {
	for want, ranks := range map[string][]int{
		"ranks ": nil, "rank 3": {3}, "ranks 0-1": {1, 0}, "ranks 0-2": {2, 0, 1}, "ranks 0, 2-4, 6": {6, 4, 3, 2, 0},
		"ranks 1, 3": {1, 3},
	} {
		if got := NamedRanks(ranks); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	unsorted := []int{2, 1}
	if RankList(unsorted); unsorted[0] != 2 {
		t.Error("the caller's list was sorted")
	}
}
