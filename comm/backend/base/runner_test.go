package base_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/mem"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// bare is a fabric that can do what it must, and nothing else.
type bare struct{ fabric.Fabric }

// links are the fabrics of the world opened last, by rank.
var links sync.Map

func init() {
	for _, name := range []string{"mem", "tcp"} {
		backend.Register("runner over "+name, func(ctx context.Context, c backend.Config) (backend.Backend, error) {
			f, err := fabric.Open(ctx, name, fabric.Config{Rank: c.Rank, Size: c.Size, HostID: "here", Timeout: c.Timeout,
				Exchange: func(ctx context.Context, card []byte) ([][]byte, error) {
					return bootstrap.Exchange(ctx, c.Store, c.Rank, c.Size, card)
				}})
			if err != nil {
				return nil, err
			}
			links.Store(c.Rank, f)
			return base.NewRunner(c, base.RunnerConfig{Fabric: bare{f}, Capabilities: backend.Capabilities{Name: "runner",
				Devices: []string{"cpu"}, Abort: true, AnySource: true, Tags: true, InProcess: true}}), nil
		})
	}
}

var worlds atomic.Int64

func open(t testing.TB, name string, size int) []*comm.Comm {
	t.Helper()
	st := store.NewHash(30 * time.Second)
	world := fmt.Sprintf("world%d", worlds.Add(1))
	comms, errs := make([]*comm.Comm, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			comms[r], errs[r] = comm.New(context.Background(), comm.WithBackend(name), comm.WithRank(r, size),
				comm.WithStore(st), comm.WithName(world), comm.WithTimeout(30*time.Second))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return comms
}

// TestRunner runs the conformance suite over links that have messages alone.
func TestRunner(t *testing.T) {
	for name, worlds := range map[string][]int{"mem": nil, "tcp": {2}} {
		t.Run(name, func(t *testing.T) {
			if name != "mem" {
				testutil.SkipIfShort(t)
			}
			commtest.Run(t, commtest.Config{Worlds: worlds, Open: func(t testing.TB, size int) []*comm.Comm {
				return open(t, "runner over "+name, size)
			}})
		})
	}
}

// TestRunnerPeerLost demands that a rank that dies is named by all others, in the communicator of all and in a split.
func TestRunnerPeerLost(t *testing.T) {
	comms := open(t, "runner over mem", 4)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx := context.Background()
			half, err := c.Split(ctx, []int{r % 2, r%2 + 2})
			if err == nil {
				err = half.Barrier(ctx)
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer half.Finalize(ctx)
			if r == 3 {
				f, _ := links.Load(3)
				f.(*mem.Rank).Kill(errors.New("killed by the test"))
				return
			}
			var lost *comm.PeerLostError
			if err := c.Barrier(ctx); !errors.As(err, &lost) || lost.Peer != 3 {
				t.Errorf("rank %d: %v", r, err)
			}
			if r == 1 {
				<-half.Broken()
			}
			if err := half.Err(); (r == 1) != (errors.As(err, &lost) && lost.Peer == 1) {
				t.Errorf("rank %d, in its half: %v", r, err)
			}
		})
	}
	wg.Wait()
	for _, c := range comms {
		c.Finalize(context.Background())
	}
}

// TestRunnerTimeout demands that on every rank the late ranks are missing, and the others have
// arrived.
func TestRunnerTimeout(t *testing.T) {
	comms := open(t, "runner over mem", 4)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx := context.Background()
			if r == 2 {
				<-c.Broken()
			}
			x := tensor.Of(make([]float32, 100))
			err := c.AllReduce(ctx, x, comm.Sum, comm.Timeout(100*time.Millisecond))
			var late *comm.TimeoutError
			if !errors.As(err, &late) || !slices.Equal(late.Missing, []int{2}) {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
	for _, c := range comms {
		c.Finalize(context.Background())
	}
}
