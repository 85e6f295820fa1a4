// Package worldtest runs a world of goroutines, for tests.
//
//	worldtest.Run(t, 3, func(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx) })
package worldtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// Run runs f on each rank of a world over fabric mem, whose communicators it finalizes. An error is the test's, with
// its rank. All of it may take a minute.
func Run(t testing.TB, ranks int, f func(ctx context.Context, c *comm.Comm) error) {
	t.Helper()
	st := store.NewHash(time.Minute)
	defer st.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for r := range ranks {
		all.Go(func() {
			c, err := comm.New(ctx, comm.WithRank(r, ranks), comm.WithStore(st), comm.WithFabric("mem"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Finalize(ctx)
			if err := f(ctx, c); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}
