package comm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
)

// Rank 3's message to rank 2 is lost in a split, so rank 0 waits for rank 2. Rank 1 has received all lists, and waits
// for rank 0 to open the new communicator's memory. It times out first, and names the rank at which the chain of waits
// ends.
func TestSplitTimesOutWhileOthersExchangeLists(t *testing.T) {
	comms := open(t, 4, func(r int) []comm.NewOption {
		hints := map[string]string{"host_id": fmt.Sprint([]int{1, 1, 0, 2}[r]), "fabric.inner": "auto"}
		if r == 3 {
			hints["fabric.script"] = "drop peer=2 class=collective"
		}
		return []comm.NewOption{comm.WithFabric("fault"), comm.WithHints(hints)}
	})
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			timeout := 10 * time.Second
			if r == 1 {
				timeout = 700 * time.Millisecond
			}
			var list []int
			if r < 2 {
				list = []int{0, 1}
			}
			if _, errs[r] = c.Split(context.Background(), list, comm.SplitTimeout(timeout)); errs[r] != nil {
				c.Abort(errs[r])
			}
		})
	}
	wg.Wait()
	var late *comm.TimeoutError
	if !errors.As(errs[1], &late) || !slices.Equal(late.Missing, []int{2}) || late.Seq != 0 ||
		!strings.Contains(errs[1].Error(), "rank 2 is in split") {
		t.Errorf("rank 1: %v", errs[1])
	}
	for _, r := range []int{0, 2} {
		if by := (*comm.AbortedError)(nil); !errors.As(errs[r], &by) || by.By != 1 {
			t.Errorf("rank %d: %v", r, errs[r])
		}
	}
	for _, c := range comms {
		wg.Go(func() { c.Finalize(context.Background()) })
	}
	wg.Wait()
}
