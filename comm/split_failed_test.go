package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chorus-comms/chorus/comm"
)

// A split fails on one rank, which lacks a message, and succeeds on the other. The other learns so at once, in an
// operation of the new communicator with a longer timeout, or in the split itself if it comes later.
func TestSplitThatFailsOnOneRank(t *testing.T) {
	const patience = time.Second
	for _, late := range []time.Duration{0, patience / 2} {
		synctest.Test(t, func(t *testing.T) {
			comms := open(t, 2, func(r int) []comm.NewOption {
				hints := map[string]string{"host_id": fmt.Sprint(r), "fabric.inner": "mem"}
				if r == 1 {
					hints["fabric.script"] = "drop peer=0 class=collective"
				}
				return []comm.NewOption{comm.WithFabric("fault"), comm.WithHints(hints), comm.WithTimeout(patience)}
			})
			began := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := comms[0].Split(context.Background(), []int{1, 0}); !errors.Is(err, comm.ErrTimeout) {
					t.Errorf("rank 0: %v", err)
				}
			})
			wg.Go(func() {
				time.Sleep(late)
				child, err := comms[1].Split(context.Background(), []int{1, 0}, comm.SplitTimeout(time.Hour))
				if err != nil {
					t.Errorf("rank 1: %v", err)
					return
				}
				err = child.Barrier(context.Background())
				var aborted *comm.AbortedError
				if !errors.As(err, &aborted) || aborted.By != 1 || !strings.Contains(aborted.Reason, "split") {
					t.Errorf("rank 1, in what it has split off: %v", err)
				}
				if took := time.Since(began); took > 10*patience {
					t.Errorf("rank 1 heard of it after %v", took)
				}
				child.Finalize(context.Background())
			})
			wg.Wait()
			for _, c := range comms {
				wg.Go(func() { c.Finalize(context.Background()) })
			}
			wg.Wait()
		})
	}
}
