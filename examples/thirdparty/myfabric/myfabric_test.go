package myfabric

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

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/fabrictest"
	"github.com/chorus-comms/chorus/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exchange gives every rank of a world every rank's payload.
func exchange(size int) func(rank int) func(context.Context, []byte) ([][]byte, error) {
	var rounds sync.Map // by number
	type round struct {
		all [][]byte
		wg  sync.WaitGroup
	}
	return func(rank int) func(context.Context, []byte) ([][]byte, error) {
		number := 0
		return func(_ context.Context, payload []byte) ([][]byte, error) {
			fresh := &round{all: make([][]byte, size)}
			fresh.wg.Add(size)
			x, _ := rounds.LoadOrStore(number, fresh)
			r := x.(*round)
			number++
			r.all[rank] = payload
			r.wg.Done()
			r.wg.Wait()
			return r.all, nil
		}
	}
}

// open opens a world of a fabric whose ranks are on the hosts that are named.
func open(t testing.TB, name string, options map[string]string, hosts ...string) []fabric.Fabric {
	t.Helper()
	ranks, errs := make([]fabric.Fabric, len(hosts)), make([]error, len(hosts))
	x := exchange(len(hosts))
	var wg sync.WaitGroup
	for r, host := range hosts {
		wg.Go(func() {
			ranks[r], errs[r] = fabric.Open(t.Context(), name, fabric.Config{Rank: r, Size: len(hosts), HostID: host,
				Exchange: x(r),
				Timeout:  30 * time.Second, Options: options})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ranks
}

func TestFabric(t *testing.T) {
	fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric {
		return open(t, Name, nil, slices.Repeat([]string{"here"}, size)...)
	}, fabrictest.Kill(func(f fabric.Fabric) { f.(*Fabric).Kill() }))
}

// TestNear has this fabric within hosts, and TCP between them.
func TestNear(t *testing.T) {
	fabrictest.Run(t, func(t testing.TB, size int) []fabric.Fabric {
		return open(t, "auto", map[string]string{"near": Name}, []string{"here", "here", "there", "there"}[:size]...)
	})
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
