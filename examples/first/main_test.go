package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

func TestAverage(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st := store.NewHash(time.Minute) // where the ranks meet
	var ranks sync.WaitGroup
	for rank := range 3 {
		ranks.Go(func() {
			c, err := comm.New(ctx, comm.WithRank(rank, 3), comm.WithStore(st), comm.WithFabric("mem"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Finalize(ctx)
			values := []float64{float64(rank), 1}
			if err := average(ctx, c, values); err != nil || values[0] != 1 || values[1] != 1 {
				t.Errorf("rank %d has %v, %v", rank, values, err)
			}
		})
	}
	ranks.Wait()
}
