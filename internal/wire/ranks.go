package wire

import (
	"slices"
	"strconv"
	"strings"
)

// RankList writes ranks in ascending order, with runs shortened: "0-3, 7".
func RankList(ranks []int) string {
	if !slices.IsSorted(ranks) {
		ranks = slices.Sorted(slices.Values(ranks))
	}
	var b strings.Builder
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(ranks[j]))
		}
		i = j + 1
	}
	return b.String()
}

// NamedRanks is RankList after a word for what it lists: "rank 7", "ranks 0-3, 7".
func NamedRanks(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + RankList(ranks)
	}
	return "ranks " + RankList(ranks)
}
