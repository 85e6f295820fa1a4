package comm_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// A world that can't be is refused before anything is allocated for it.
func TestLargestWorld(t *testing.T) {
	for _, size := range []int{bootstrap.MaxRanks + 1, 1<<31 - 1, 1 << 40, -1, 0} {
		for _, backend := range []string{"native", "fake"} {
			st := store.NewHash(0)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := comm.New(context.Background(), comm.WithRank(0, size), comm.WithStore(st), comm.WithBackend(backend))
			runtime.ReadMemStats(&after)
			if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), "world of") {
				t.Errorf("a world of %d: %v", size, err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
				t.Errorf("a world of %d took %d bytes", size, took)
			}
		}
		if _, err := bootstrap.Open(context.Background(), bootstrap.Info{Size: size}, bootstrap.Options{}); err == nil {
			t.Errorf("bootstrap.Open takes a world of %d", size)
		}
		if _, err := bootstrap.Exchange(context.Background(), store.NewHash(0), 0, size, nil); err == nil {
			t.Errorf("bootstrap.Exchange takes a world of %d", size)
		}
	}
}
