package comm_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	_ "github.com/chorus-comms/chorus/comm/fake"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
)

var worlds atomic.Int64

// open makes a world in this process: a communicator for each rank.
func open(t testing.TB, size int, opts func(rank int) []comm.NewOption) []*comm.Comm {
	t.Helper()
	st := store.NewHash(30 * time.Second)
	name := fmt.Sprintf("test%d", worlds.Add(1))
	comms := make([]*comm.Comm, size)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			all := append([]comm.NewOption{comm.WithRank(r, size), comm.WithStore(st), comm.WithName(name),
				comm.WithTimeout(30 * time.Second)}, opts(r)...)
			comms[r], errs[r] = comm.New(ctx, all...)
		})
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return comms
}

func over(fabric string) func(testing.TB, int) []*comm.Comm {
	return func(t testing.TB, size int) []*comm.Comm {
		return open(t, size, func(int) []comm.NewOption { return []comm.NewOption{comm.WithFabric(fabric)} })
	}
}

// mixed puts ranks on two hosts, in turn, so that both shared memory and TCP carry them.
func mixed(t testing.TB, size int) []*comm.Comm {
	return open(t, size, func(r int) []comm.NewOption {
		return []comm.NewOption{comm.WithFabric("auto"), comm.WithHints(map[string]string{"host_id": fmt.Sprintf("host%d",
			r%3/2)})}
	})
}

func TestConformanceMem(t *testing.T) {
	commtest.Run(t, commtest.Config{Open: over("mem"), Shared: true, Worlds: suiteWorlds})
}
func TestConformanceSHM(t *testing.T) {
	commtest.Run(t, commtest.Config{Open: over("shm"), Shared: true})
}
func TestConformanceTCP(t *testing.T) {
	testutil.SkipIfShort(t) // TestConformanceMixed has TCP, too
	commtest.Run(t, commtest.Config{Open: over("tcp"), Shared: true})
}
func TestConformanceMixed(t *testing.T) {
	commtest.Run(t, commtest.Config{Open: mixed, Shared: true, Worlds: testutil.Pick([]int{3}, []int{3, 4})})
}
func TestConformanceFake(t *testing.T) {
	commtest.Run(t, commtest.Config{Open: func(t testing.TB, size int) []*comm.Comm {
		return open(t, size, func(int) []comm.NewOption { return []comm.NewOption{comm.WithBackend("fake")} })
	}})
}
