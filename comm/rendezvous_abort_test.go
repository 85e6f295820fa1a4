package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// TestAbortWhileOthersJoin aborts as soon as this rank has joined: the others may
// still be joining, and must hear of it all the same.
func TestAbortWhileOthersJoin(t *testing.T) {
	st := store.NewHash(30 * time.Second)
	enough := errors.New("enough")
	for round := range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var wg sync.WaitGroup
		for r := range 3 {
			wg.Go(func() {
				c, err := comm.New(ctx, comm.WithRank(r, 3), comm.WithStore(st), comm.WithName(fmt.Sprintf("early%d", round)),
					comm.WithFabric("mem"))
				if err != nil {
					t.Errorf("round %d, rank %d: %v", round, r, err)
					return
				}
				if r == 2 {
					c.Abort(enough)
				}
				var aborted *comm.AbortedError
				if err := c.Barrier(ctx); !errors.As(err, &aborted) || aborted.By != 2 {
					t.Errorf("round %d, rank %d: %v", round, r, err)
				}
				if err := c.Finalize(ctx); err != nil {
					t.Errorf("round %d, rank %d: %v", round, r, err)
				}
			})
		}
		wg.Wait()
		cancel()
		if t.Failed() {
			return
		}
	}
}
