package mybackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/thirdparty/mylib"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var worlds atomic.Int64

// openWorld opens a communicator for each rank; missing ranks don't come.
func openWorld(backend string, size, present int, timeout time.Duration) ([]*comm.Comm, []error) {
	st := store.NewHash(30 * time.Second)
	name := fmt.Sprintf("world%d", worlds.Add(1))
	comms, errs := make([]*comm.Comm, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range present {
		wg.Go(func() {
			comms[r], errs[r] = comm.New(context.Background(), comm.WithBackend(backend), comm.WithRank(r, size),
				comm.WithStore(st), comm.WithName(name), comm.WithTimeout(timeout))
		})
	}
	wg.Wait()
	return comms, errs
}

func TestConformance(t *testing.T) {
	commtest.Run(t, commtest.Config{Open: func(t testing.TB, size int) []*comm.Comm {
		t.Helper()
		comms, errs := openWorld(Name, size, size, 30*time.Second)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		return comms
	}})
}

// TestAlgorithms demands that sums are the library's own, as far as it has them, and other collectives plans.
func TestAlgorithms(t *testing.T) {
	comms, errs := openWorld(Name, 2, 2, 30*time.Second)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			ctx := context.Background()
			defer c.Finalize(ctx)
			var by []bool
			c.RegisterCompletionHook(func(o comm.OpInfo, err error) { by = append(by, o.Algorithm == ownSum) })
			x, y := tensor.Of([]float32{1}), tensor.Of([]int8{1})
			err := errors.Join(c.AllReduce(ctx, x, comm.Sum), c.AllReduce(ctx, x, comm.Max), c.AllReduce(ctx, y, comm.Sum),
				c.AllReduce(ctx, x, comm.PremulSum(2)), c.AllReduce(ctx, x, comm.Avg))
			if want := []bool{true, false, false, true, false}; err != nil || !slices.Equal(by, want) {
				t.Errorf("rank %d: by the library's own %v, want %v; %v", c.Rank(), by, want, err)
			}
		})
	}
	wg.Wait()
}

// TestMissingRank demands that the ranks that came get the name of the missing one.
func TestMissingRank(t *testing.T) {
	_, errs := openWorld(Name, 3, 2, 300*time.Millisecond)
	for r, err := range errs[:2] {
		var missing *bootstrap.MissingRanksError
		if !errors.As(err, &missing) || !slices.Equal(missing.Missing, []int{2}) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestLostRank cuts a rank's connection without a goodbye.
func TestLostRank(t *testing.T) {
	var cut *mylib.Comm
	backend.Register("mylib-cut", func(ctx context.Context, c backend.Config) (backend.Backend, error) {
		l, err := connect(ctx, c)
		if c.Rank == 2 {
			cut = l.lib
		}
		return begin(c, l), err
	})
	comms, errs := openWorld("mylib-cut", 3, 3, 30*time.Second)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg, passed sync.WaitGroup
	passed.Add(len(comms))
	for r, c := range comms {
		wg.Go(func() {
			ctx := context.Background()
			if err := c.Barrier(ctx); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			passed.Done()
			if r == 2 {
				passed.Wait() // what it has sent may not have left yet
				cut.Kill()
			}
			err := c.AllReduce(ctx, tensor.Of([]float32{1}), comm.Sum)
			var lost *comm.PeerLostError
			if !errors.As(err, &lost) || r != 2 && lost.Peer != 2 {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	wg.Wait()
	for _, c := range comms {
		wg.Go(func() { c.Finalize(context.Background()) })
	}
	wg.Wait()
}
