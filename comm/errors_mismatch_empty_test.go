package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Ranks of several hosts, some of them on one, whose operation moves nothing learn all the same that another
// rank calls something else, also if they have gone on for hundreds of operations by then.
func TestMismatchWithNothing(t *testing.T) {
	for _, ahead := range []int64{0, 1000} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) { testMismatchWithNothing(t, ahead) })
	}
}

// testMismatchWithNothing has rank 1 call something else when each of the others is that many operations ahead.
func testMismatchWithNothing(t *testing.T, ahead int64) {
	comms := open(t, 4, func(r int) []comm.NewOption {
		return []comm.NewOption{comm.WithFabric("mem"), comm.WithHints(map[string]string{"host_id": []string{"a", "b", "c",
			"c"}[r]})}
	})
	errs := make([]error, len(comms))
	var wg, gone sync.WaitGroup
	gone.Add(len(comms) - 1)
	for r, c := range comms {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if r == 1 {
				gone.Wait()
				errs[r] = c.Barrier(ctx)
				return
			}
			nothing := tensor.Must(tensor.Zeros(dtype.Float32, 0))
			for k := int64(0); errs[r] == nil; k++ {
				if k == ahead {
					gone.Done()
				}
				errs[r] = c.Broadcast(ctx, nothing, 0)
			}
		})
	}
	wg.Wait()
	for r, err := range errs {
		if !errors.Is(err, comm.ErrMismatch) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for _, c := range comms {
		c.Finalize(context.Background())
	}
}
