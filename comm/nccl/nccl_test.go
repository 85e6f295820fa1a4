//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/commtest"
	"github.com/chorus-comms/chorus/comm/nccl"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// levels are the feature levels of the stand-in.
var levels = nccltest.Levels

// simulate makes a stand-in the library that has the name that it returns.
func simulate(t testing.TB, opts nccltest.Options) (place string) {
	t.Helper()
	rt, err := device.Open("accinte")
	if err != nil {
		t.Fatal(err)
	}
	opts.Driver = rt.Driver()
	sim, err := nccltest.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	place = "a stand-in for " + t.Name()
	if _, err := nccl.Supply("NCCL", place, sim.Table(), "accinte"); err != nil {
		t.Fatal(err)
	}
	return place
}

func open(t testing.TB, backend, library string, size int, opts ...comm.NewOption) []*comm.Comm {
	t.Helper()
	return openOn(t, []string{"accinte:0", "accinte:1"}, backend, library, size, opts...)
}

// openOn makes a world whose ranks are on the devices in turn.
func openOn(t testing.TB, devices []string, backend, library string, size int, opts ...comm.NewOption) []*comm.Comm {
	t.Helper()
	st := store.NewHash(time.Minute)
	t.Cleanup(func() { st.Close() })
	hints := map[string]string{}
	if library != "" {
		hints["library"] = library
	}
	comms, errs := make([]*comm.Comm, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range comms {
		wg.Go(func() {
			comms[r], errs[r] = comm.New(context.Background(), append([]comm.NewOption{comm.WithBackend(backend),
				comm.WithDevice(devices[r%len(devices)]), comm.WithRank(r, size), comm.WithStore(st),
				comm.WithTimeout(30 * time.Second), comm.WithHints(hints)}, opts...)...)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return comms
}

// each runs f for every rank of a world, with a stream of its own and ones on it.
func each(t *testing.T, comms []*comm.Comm,
	f func(ctx context.Context, c *comm.Comm, s *device.Stream, ones *tensor.Tensor) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			s, err := c.Stream().Device().NewStream(device.Normal)
			if err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(device.WithStream(context.Background(), s), 30*time.Second)
			defer cancel()
			x, err := tensor.EmptyOn(ctx, s.Device(), dtype.Int32, 100)
			if err == nil {
				err = tensor.Fill(ctx, x, 1)
			}
			if err == nil {
				err = f(ctx, c, s, x)
			}
			if err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
			_ = s.Recover(ctx)
			if err := errors.Join(c.Finalize(ctx), s.Close()); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	wg.Wait()
}

// skipped are the tests that need what no library can do: withdraw messages, or let the communicator see a graph's
// runs. Ranks that call different things hang until their time is over; TestMismatch has a short one.
var skipped = []string{"Hooks", "Timeouts", "Withdrawn", "Leaving", "Replays", "Mismatches"}

func TestConformance(t *testing.T) {
	for i, level := range levels {
		for _, backend := range []string{"nccl", "ncclx", "rccl"} {
			last := i == len(levels)-1
			if !last && (testutil.Short() || backend != "nccl") { // the backends are one, over libraries with other names
				continue
			}
			worlds := []int{3}
			if last && backend == "nccl" {
				worlds = testutil.Pick([]int{3}, []int{1, 2, 3, 4})
			} else if testutil.Short() {
				continue
			}
			t.Run(backend+"/"+level, func(t *testing.T) {
				library := simulate(t, nccltest.Options{Version: level})
				commtest.Run(t, commtest.Config{
					Open:   func(t testing.TB, size int) []*comm.Comm { return open(t, backend, library, size) },
					Shared: true, Device: true, Worlds: worlds,
					Skip: skipped})
			})
		}
	}
	t.Run("blocking", func(t *testing.T) {
		library := simulate(t, nccltest.Options{Version: "2.32"})
		blocking := comm.WithHints(map[string]string{"library": library, "blocking": "1"})
		commtest.Run(t, commtest.Config{
			Open:   func(t testing.TB, size int) []*comm.Comm { return open(t, "nccl", library, size, blocking) },
			Shared: true, Device: true, Worlds: []int{2}, Skip: skipped})
	})
}
