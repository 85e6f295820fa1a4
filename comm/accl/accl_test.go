package accl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/commtest"
	_ "github.com/chorus-comms/chorus/device/accl"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func TestMain(m *testing.M) {
	const signals = "github.com/chorus-comms/chorus/observe/record.listen.func1" // for ever, once there is a dump
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(signals))
}

var worlds atomic.Int64

// openWorld opens a communicator for each rank.
func openWorld(backend string, size int, hints map[string]string, more ...comm.NewOption) ([]*comm.Comm, error) {
	st := store.NewHash(30 * time.Second)
	name := fmt.Sprintf("world%d", worlds.Add(1))
	comms, errs := make([]*comm.Comm, size), make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() {
			opts := []comm.NewOption{comm.WithBackend(backend), comm.WithRank(r, size), comm.WithStore(st), comm.WithName(name),
				comm.WithTimeout(30 * time.Second)}
			if hints != nil {
				opts = append(opts, comm.WithHints(hints))
			}
			opts = append(opts, more...)
			comms[r], errs[r] = comm.New(context.Background(), opts...)
		})
	}
	wg.Wait()
	return comms, errors.Join(errs...)
}

// way is how the engines of a test go about it, by their hints.
type way struct {
	name       string
	compressed bool
	hints      map[string]string
}

// ways are all: each protocol, eager and by rendezvous, float32 compressed and not, over each network. Buffers are
// small, so that messages have several segments, and reductions several pieces.
func ways() (all []way) {
	for _, network := range []string{"", "packets", "auto"} {
		for _, protocol := range []string{"udp", "tcp", "rdma-eager", "rdma-rendezvous"} {
			for _, compressed := range []bool{false, true} {
				kind, limit, _ := strings.Cut(protocol, "-")
				w := way{name: fmt.Sprintf("%s/%s", cmp.Or(network, "process"), protocol), compressed: compressed,
					hints: map[string]string{"accl.protocol": map[string]string{"rdma": "cyt_rdma"}[kind],
						"accl.rx_buffers": "4", "accl.rx_buffer_size": "512", "accl.max_eager_size": "512",
						"accl.max_rendezvous_size": "8192"}}
				if kind != "rdma" {
					w.hints["accl.protocol"] = kind
				}
				if kind == "udp" {
					w.hints["accl.max_segment_size"] = "384"
				}
				if limit == "eager" {
					w.hints["accl.max_eager_size"], w.hints["accl.max_rendezvous_size"] = "1048576", "1048640" // of spare buffers, too
				}
				if network != "" {
					w.hints["accl.network"] = network
				}
				if compressed {
					w.name += "-compressed"
					w.hints["accl.compress"] = "float16"
				}
				all = append(all, w)
			}
		}
	}
	return all
}

// apart are the ways of engines in several processes.
func apart() []way {
	return slices.DeleteFunc(ways(), func(w way) bool { return w.hints["accl.network"] != "auto" })
}

// wayOf returns the one of a name.
func wayOf(name string) map[string]string {
	for _, w := range ways() {
		if w.name == name {
			return w.hints
		}
	}
	panic(name)
}

func TestConformance(t *testing.T) { conform(t, sizes[:4], nil) }

func TestConformanceRendezvous(t *testing.T) {
	conform(t, sizes[1:3], wayOf("process/rdma-rendezvous"))
}

// TestConformanceLinks has engines reach each other by shared memory and TCP, as those of several processes do.
func TestConformanceLinks(t *testing.T) {
	conform(t, sizes[1:3], map[string]string{"accl.network": "auto"})
}

// sizes are the worlds of tests.
var sizes = []int{1, 2, 3, 4, 8}

// gridLimit is for thousands of operations whose messages are cut into segments of some hundred bytes, on a machine
// that has other work.
const gridLimit = 10 * time.Minute

// TestGrid has the suite go every way, in worlds of every size, in one process and in many:
//
//	CHORUS_TEST_LONG=1 go test ./comm/accl -run Grid -timeout 3h
//
// An ordinary run has some of the ways, in one world each, and of the suite the collectives. What's compressed has
// numbers that float16 holds exactly, but for those of Specials.
func TestGrid(t *testing.T) {
	testutil.SkipIfShort(t)
	for i, w := range ways() {
		skip := []string{}
		if w.compressed {
			skip = append(skip, "Specials")
		}
		if commtest.Long() {
			t.Run(w.name, func(t *testing.T) {
				cfg := suite(sizes, w.hints, comm.WithTimeout(gridLimit))
				cfg.Ordinary, cfg.Skip, cfg.Limit = true, skip, gridLimit
				commtest.Run(t, cfg)
			})
		} else if i%5 == 0 {
			t.Run(w.name, func(t *testing.T) {
				cfg := suite([]int{2 + i%3}, w.hints)
				commtest.Collectives(t, cfg)
				if !w.compressed {
					commtest.Specials(t, cfg)
				}
			})
		}
	}
	for i, w := range apart() {
		for _, n := range sizes[1:] {
			if commtest.Long() || i == 3 && n == 3 {
				t.Run(fmt.Sprintf("processes=%d/%s", n, w.name), func(t *testing.T) { conformApart(t, n, w) })
			}
		}
	}
}

// TestDevice has tensors in the memory of engines, whose collectives are work of streams.
func TestDevice(t *testing.T) {
	cfg := suite([]int{testutil.Pick(2, 3)}, nil)
	cfg.Device = true
	cfg.Open = func(t testing.TB, size int) []*comm.Comm {
		t.Helper()
		comms, err := openWorld(Name, size, nil, comm.WithDevice("accl:0"))
		if err != nil {
			t.Fatal(err)
		}
		return comms
	}
	commtest.Run(t, cfg)
}

// conform runs the suite in worlds of some sizes; in the longest run in all.
func conform(t *testing.T, worlds []int, hints map[string]string) {
	if commtest.Long() {
		worlds = sizes
	} else if testutil.Short() {
		worlds = []int{1, 3}
	}
	commtest.Run(t, suite(worlds, hints))
}

func suite(worlds []int, hints map[string]string, opts ...comm.NewOption) commtest.Config {
	return commtest.Config{Worlds: worlds, Open: func(t testing.TB, size int) []*comm.Comm {
		t.Helper()
		comms, err := openWorld(Name, size, hints, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return comms
	}}
}

// TestAlgorithms demands that what the engines have is theirs, and the rest plans.
func TestAlgorithms(t *testing.T) {
	comms, err := openWorld(Name, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		var by []string
		c.RegisterCompletionHook(func(o comm.OpInfo, err error) { by = append(by, o.Algorithm) })
		f, i, b, z := tensor.Of([]float32{1, 2}), tensor.Of([]int64{1}), tensor.Of([]int8{1}), tensor.Of([]complex128{1})
		three := tensor.Of(make([]complex128, 3))
		err := errors.Join(c.AllReduce(ctx, f, comm.Sum), c.AllReduce(ctx, i, comm.Max), c.AllReduce(ctx, f, comm.Avg),
			c.Broadcast(ctx, z, 1), c.AllGatherSingle(ctx, three, z), c.Barrier(ctx),
			c.AllReduce(ctx, b, comm.Sum), c.AllReduce(ctx, f, comm.Min), c.Scan(ctx, f, comm.Sum))
		want := []string{"accl_allreduce", "accl_allreduce", "accl_allreduce", "accl_bcast", "accl_allgather", "accl_barrier"}
		if len(by) != len(want)+3 || !slices.Equal(by[:len(want)], want) ||
			strings.Contains(strings.Join(by[len(want):], " "), "accl") {
			err = errors.Join(err, fmt.Errorf("they were carried out by %q", by))
		}
		return err
	})
}

// openTapped opens a world, and gives the link of one of its ranks.
func openTapped(t *testing.T, what string, size, rank int, opts ...comm.NewOption) ([]*comm.Comm, <-chan *link) {
	t.Helper()
	links, name := make(chan *link, 1), fmt.Sprint(what, worlds.Add(1))
	backend.Register(name, func(ctx context.Context, c backend.Config) (backend.Backend, error) {
		b, err := begin(ctx, c)
		if err != nil {
			return nil, err
		}
		if c.Rank == rank {
			links <- b.link
		}
		return b, nil
	})
	comms, err := openWorld(name, size, nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return comms, links
}

// each runs f on each rank and finalizes the communicators.
func each(t *testing.T, comms []*comm.Comm, f func(ctx context.Context, c *comm.Comm) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := f(ctx, c); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	wg.Wait()
	for _, c := range comms {
		wg.Go(func() { c.Finalize(context.Background()) })
	}
	wg.Wait()
}

// TestLostRank takes a rank's engine out of the network: the others name it, also those that wait for another.
func TestLostRank(t *testing.T) {
	comms, cut := openTapped(t, "accl-cut", 3, 2)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		err := c.Barrier(ctx) // in which a slow rank may learn of it
		if c.Rank() == 2 {
			(<-cut).leave(errors.New("its card fell out"))
			return nil
		}
		if err == nil {
			err = c.AllReduce(ctx, tensor.Of(make([]float32, 10_000)), comm.Sum)
		}
		if lost := (*comm.PeerLostError)(nil); !errors.As(err, &lost) || lost.Peer != 2 {
			return fmt.Errorf("not a loss of rank 2: %v", err)
		}
		return nil
	})
}

// TestEngineErrors demands that what an engine returns is said by name, on every rank.
func TestEngineErrors(t *testing.T) {
	comms, links := openTapped(t, "accl-broken", 2, 1)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		x := tensor.Of(make([]float32, 10_000))
		err := c.AllReduce(ctx, x, comm.Sum)
		if c.Rank() == 1 {
			dev := (<-links).driver.Device()
			for i := range uint32(6) {
				dev.Write(abi.SpareBuffers+4*i, 0xffff0000) // no memory there
			}
		}
		err = errors.Join(err, c.Barrier(ctx), c.Reduce(ctx, x, 1, comm.Sum, comm.Timeout(2*time.Second)),
			c.Barrier(ctx, comm.Timeout(2*time.Second)))
		// Of the rank that can't write, or of the one to which nothing came.
		if err == nil || !strings.Contains(err.Error(), "DMA_DECODE_ERROR") &&
			!strings.Contains(err.Error(), "DMA_NOT_EXPECTED_BTT_ERROR") {
			return fmt.Errorf("the engine's error isn't named: %v", err)
		}
		return nil
	})
}

// TestDeadline has a rank stay away from the middle of an operation, between roll call and engine.
func TestDeadline(t *testing.T) {
	comms, links := openTapped(t, "accl-late", 2, 1)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 1 {
			l := <-links
			l.mu.Lock() // this rank's call doesn't begin
			defer l.mu.Unlock()
			go func() {
				c.AllReduce(ctx, tensor.Of(make([]float32, 10_000)), comm.Sum)
			}()
			<-c.Broken()
			return nil
		}
		err := c.AllReduce(ctx, tensor.Of(make([]float32, 10_000)), comm.Sum, comm.Timeout(100*time.Millisecond))
		if !errors.Is(err, comm.ErrTimeout) {
			return fmt.Errorf("not a time-out: %v", err)
		}
		return nil
	})
}

// TestManySplits has more communicators than exchange memory holds.
func TestManySplits(t *testing.T) {
	comms, err := openWorld(Name, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		var parts []*comm.Comm
		for range 120 {
			p, err := c.Split(ctx, []int{2, 0, 1})
			if err != nil {
				return err
			}
			parts = append(parts, p)
		}
		for range 2 {
			for _, p := range parts {
				x := tensor.Of([]int32{int32(p.Rank())})
				if err := p.AllReduce(ctx, x, comm.Sum); err != nil || x.At(0) != 3 {
					return fmt.Errorf("the sum is %v; %v", x.At(0), err)
				}
			}
		}
		for _, p := range parts {
			if err := p.Finalize(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestCompressLater has compression change between operations, and demands that ranks agree about it.
func TestCompressLater(t *testing.T) {
	comms, err := openWorld(Name, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		for _, w := range []struct {
			hint string
			sum  float32
		}{{"none", 2.0002}, {"float16", 2}, {"none", 2.0002}} {
			x := tensor.Of([]float32{1.0001})
			err := errors.Join(c.SetHints(map[string]string{"accl.compress": w.hint}), c.AllReduce(ctx, x, comm.Sum))
			if err != nil || float32(x.At(0)) != w.sum {
				return fmt.Errorf("compressed as %s: %v, %v", w.hint, x.At(0), err)
			}
		}
		if err := c.SetHints(map[string]string{"accl.compress": "zip"}); !errors.Is(err, comm.ErrInvalidArgument) {
			return fmt.Errorf("zip: %v", err)
		}
		if c.Rank() == 0 {
			c.SetHints(nil)
		}
		err := c.AllReduce(ctx, tensor.Of([]float32{1}), comm.Sum)
		if mismatch := (*comm.MismatchError)(nil); !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "hints") {
			return fmt.Errorf("ranks that compress and don't: %v", err)
		}
		return nil
	})
}

// TestHints refuses hints that make no sense.
func TestHints(t *testing.T) {
	for _, hints := range []map[string]string{{"accl.protocol": "smoke"}, {"accl.compress": "zip"}, {"accl.speed": "9"},
		{"accl.rx_buffers": "0"}, {"accl.network": "pigeons"}, {"accl.rx_buffers": "many"}} {
		if _, err := openWorld(Name, 1, hints); !errors.Is(err, comm.ErrInvalidArgument) {
			t.Errorf("%v: %v", hints, err)
		}
	}
	if comms, err := openWorld(Name, 1, map[string]string{"accl.max_eager_size": "8"}); err == nil ||
		!strings.Contains(err.Error(), "EAGER_THRESHOLD_INVALID") {
		t.Errorf("an eager size below that of the buffers: %v, %v", comms, err)
	}
}

// TestCard demands that a card as a rank's engine is refused with what is missing: here it's XRT.
func TestCard(t *testing.T) {
	t.Setenv("XILINX_XRT", t.TempDir())
	_, err := openWorld(Name, 1, map[string]string{"accl.card": "ccl_offload.xclbin"})
	if !errors.Is(err, comm.ErrUnsupported) || !strings.Contains(err.Error(), "XRT") ||
		!strings.Contains(err.Error(), "ccl_offload.xclbin") {
		t.Errorf("a card that isn't there: %v", err)
	}
}
