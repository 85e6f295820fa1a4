package myfabric

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange gives every rank of a world every rank's payload.
func exchange(size int) func(rank int) func(context.Context, []byte) ([][]byte, error) {
	all := make([][]byte, size)
	var wg sync.WaitGroup
	wg.Add(size)
	return func(rank int) func(context.Context, []byte) ([][]byte, error) {
		return func(_ context.Context, payload []byte) ([][]byte, error) {
			all[rank] = payload
			wg.Done()
			wg.Wait()
			return all, nil
		}
	}
}

func TestFabric(t *testing.T) {
	fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric {
		t.Helper()
		ranks, errs := make([]fabric.Fabric, size), make([]error, size)
		x := exchange(size)
		var wg sync.WaitGroup
		for r := range size {
			wg.Go(func() {
				ranks[r], errs[r] = fabric.Open(context.Background(), Name, fabric.Config{Rank: r, Size: size, Exchange: x(r), Timeout: 30 * time.Second})
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		return ranks
	}, fabrictest.Kill(func(f fabric.Fabric) { f.(*Fabric).Kill() }))
}

var worlds atomic.Int64

// TestConformance runs Chorus' own backend, with all its algorithms, over this fabric.
func TestConformance(t *testing.T) {
	commtest.Run(t, commtest.Config{Worlds: []int{1, 2, 3}, Open: func(t testing.TB, size int) []*comm.Comm {
		t.Helper()
		st := store.NewHash(30 * time.Second)
		name := fmt.Sprintf("world%d", worlds.Add(1))
		comms, errs := make([]*comm.Comm, size), make([]error, size)
		var wg sync.WaitGroup
		for r := range size {
			wg.Go(func() {
				comms[r], errs[r] = comm.New(context.Background(), comm.WithFabric(Name), comm.WithRank(r, size),
					comm.WithStore(st), comm.WithName(name), comm.WithTimeout(30*time.Second))
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		return comms
	}})
}
