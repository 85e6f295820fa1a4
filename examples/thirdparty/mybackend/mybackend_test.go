package mybackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

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

// TestMissingRank demands that those who came learn who didn't.
func TestMissingRank(t *testing.T) {
	_, errs := openWorld(Name, 3, 2, 300*time.Millisecond)
	for r, err := range errs[:2] {
		if err == nil || !strings.Contains(err.Error(), "ranks 2 did not come") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestLostRank cuts a rank's connection without a goodbye.
func TestLostRank(t *testing.T) {
	var cut *group
	backend.Register("star-cut", func(ctx context.Context, c backend.Config) (backend.Backend, error) {
		b, err := open(ctx, c)
		if err == nil && c.Rank == 2 {
			cut = b.(*group)
		}
		return b, err
	})
	comms, errs := openWorld("star-cut", 3, 3, 30*time.Second)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx := context.Background()
			if err := c.Barrier(ctx); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if r == 2 {
				cut.job.link.conn.Close()
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
