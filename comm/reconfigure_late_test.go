package comm

import (
	"errors"
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/comm/regroup"
)

// TestReconfigureOwnTimeIsOver has a reconfiguration fail because one member's own time was over. The others miss that
// rank; the rank itself misses none.
func TestReconfigureOwnTimeIsOver(t *testing.T) {
	members := make([]regroup.Member, 3)
	for r := range members {
		members[r].Place.World, members[r].Place.Size, members[r].Place.Rank = "w", 3, r
	}
	for rank, want := range [][]int{{}, {0}, {0}} {
		c := &Comm{rank: rank, size: 3, opened: newOptions{world: "w"}}
		err := c.reconfigureError(members, &regroup.Error{Kind: regroup.Missing, Members: []int{0}})
		e, ok := errors.AsType[*TimeoutError](err)
		if !ok || !slices.Equal(e.Missing, want) {
			t.Errorf("rank %d misses %v, want %v: %v", rank, e.Missing, want, err)
		}
	}
}
